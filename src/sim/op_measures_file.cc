// Measured ops as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_values.h"
#include "device/op_queries.h"
#include "sim/op_measures.h"

namespace tandem::sim {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int64_t kVersion = 1;
constexpr size_t kMostBytes = size_t{16} << 20;
constexpr size_t kMostPoints = 1 << 16;
constexpr int32_t kDeepest = 8;
constexpr double kMostNanos = 1e15;
constexpr int64_t kMostAmount = int64_t{1} << 50;
constexpr std::array kShapeNames = {"layers", "hidden",   "intermediate",
                                    "heads",  "kv_heads", "vocabulary"};

// Of one file: what is wrong is said with its name.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  [[nodiscard]] Error wrong(std::string_view what) const {
    return invalid_argument(
        fmt::format("'{}' is not a file of `tandem profile --op-times`: {}", path_, what),
        "op-times");
  }
  [[nodiscard]] Result<int64_t> count(const json& object, std::string_view key) const {
    const json* value = json_member(object, key);
    const std::optional<int64_t> number = value == nullptr ? std::nullopt : json_integer(*value);
    if (!number || *number < 0 || *number > kMostAmount) {
      return wrong(fmt::format("{} is missing or not a whole number from 0 on", key));
    }
    return *number;
  }
  [[nodiscard]] Result<double> nanos(const json& value, std::string_view key) const {
    const double number = json_number(value).value_or(-1);
    if (!(number >= 0 && number <= kMostNanos)) {
      return wrong(fmt::format("{} has a time that is not from 0 to 1e15 ns", key));
    }
    return number;
  }
  [[nodiscard]] Result<device::OpLine> line(const json& object) const;
  [[nodiscard]] Result<MeasuredOps> all(const json& object) const;

 private:
  const std::string& path_;
};

Result<device::OpLine> Reader::line(const json& object) const {
  const json* op = object.is_object() ? json_member(object, "op") : nullptr;
  const std::optional<std::string> name = op == nullptr ? std::nullopt : json_string(*op);
  const auto kind = std::ranges::find(device::kOpNames, name.value_or(""),
                                      [](const char* known) { return std::string_view(known); });
  if (kind == device::kOpNames.end()) {
    return wrong(fmt::format("ops has one of unknown name '{}'", name.value_or("")));
  }
  device::OpLine line{.key = {.kind = static_cast<size_t>(kind - device::kOpNames.begin())}};
  ASSIGN_OR_RETURN(line.key.n, count(object, "n"));
  ASSIGN_OR_RETURN(line.key.k, count(object, "k"));
  const json* points = json_member(object, "points");
  if (points == nullptr || !points->is_array() || points->empty() || points->size() > kMostPoints) {
    return wrong(fmt::format("{} has no points", *name));
  }
  for (const json& point : *points) {
    const std::optional<int64_t> amount =
        point.is_array() && point.size() == 2 ? json_integer(point[0]) : std::nullopt;
    if (!amount || *amount < 0 || *amount > kMostAmount ||
        (!line.points.empty() && *amount <= line.points.back().amount)) {
      return wrong(
          fmt::format("{} has points that are not [amount, ns] with rising amounts", *name));
    }
    ASSIGN_OR_RETURN(const double time, nanos(point[1], *name));
    line.points.push_back({.amount = *amount, .nanos = time});
  }
  return line;
}

Result<MeasuredOps> Reader::all(const json& object) const {
  const json* machine = object.is_object() ? json_member(object, "machine") : nullptr;
  const json* ops = object.is_object() ? json_member(object, "ops") : nullptr;
  const json* attention = object.is_object() ? json_member(object, "attention") : nullptr;
  const json* shape = object.is_object() ? json_member(object, "model") : nullptr;
  MeasuredOps measured;
  if (machine == nullptr || !machine->is_string() || shape == nullptr || !shape->is_object() ||
      ops == nullptr || !ops->is_array() || ops->size() > kMostPoints) {
    return wrong("machine, model and ops are not all there");
  }
  measured.machine = machine->get<std::string>();
  ASSIGN_OR_RETURN(const int64_t version, count(object, "version"));
  if (version != kVersion) {
    return wrong(fmt::format("version {}, this program reads {}", version, kVersion));
  }
  ASSIGN_OR_RETURN(measured.memory_bytes, count(object, "memory_bytes"));
  for (size_t i = 0; i < kShapeNames.size(); ++i) {
    ASSIGN_OR_RETURN(measured.shape[i], count(*shape, kShapeNames[i]));
  }
  auto table = std::make_shared<device::OpTable>();
  for (const json& op : *ops) {
    ASSIGN_OR_RETURN(device::OpLine one, line(op));
    table->lines.push_back(std::move(one));
  }
  std::ranges::sort(table->lines, {}, &device::OpLine::key);
  if (std::ranges::adjacent_find(table->lines, {}, &device::OpLine::key) != table->lines.end()) {
    return wrong("ops has one twice");
  }
  if (attention == nullptr || !attention->is_array() ||
      attention->size() != table->attention.size()) {
    return wrong("attention is not five numbers");
  }
  for (size_t i = 0; i < table->attention.size(); ++i) {
    ASSIGN_OR_RETURN(table->attention[i], nanos((*attention)[i], "attention"));
  }
  measured.table = std::move(table);
  return measured;
}

}  // namespace

Status write_measured_ops(const MeasuredOps& measured, const std::string& path) {
  ordered_json shape;
  for (size_t i = 0; i < kShapeNames.size(); ++i) {
    shape[kShapeNames[i]] = measured.shape[i];
  }
  ordered_json ops = ordered_json::array();
  for (const device::OpLine& line : measured.table->lines) {
    ordered_json points = ordered_json::array();
    for (const device::OpPoint& point : line.points) {
      points.push_back({point.amount, std::round(point.nanos)});
    }
    ops.push_back({{"op", device::kOpNames[line.key.kind]},
                   {"n", line.key.n},
                   {"k", line.key.k},
                   {"points", std::move(points)}});
  }
  const ordered_json all = {{"version", kVersion},
                            {"machine", measured.machine},
                            {"memory_bytes", measured.memory_bytes},
                            {"model", std::move(shape)},
                            {"attention", measured.table->attention},
                            {"ops", std::move(ops)}};
  std::ofstream file(path);
  file << all.dump() << "\n";
  file.flush();
  return file.good()
             ? Status{}
             : Status{Error{ErrorCode::kIo, fmt::format("cannot write '{}'", path), "op-times"}};
}

Result<MeasuredOps> read_measured_ops(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  for (std::array<char, 4096> part{}; file && text.size() <= kMostBytes;) {
    file.read(part.data(), part.size());
    text.append(part.data(), static_cast<size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) {
    return Error{ErrorCode::kIo, fmt::format("cannot read '{}'", path), "op-times"};
  }
  const Reader reader(path);
  if (text.size() > kMostBytes || json_nests_deeper(text, kDeepest)) {
    return reader.wrong("too large or too deep");
  }
  const json parsed = json::parse(text, nullptr, false);
  if (parsed.is_discarded()) {
    return reader.wrong("not JSON");
  }
  return reader.all(parsed);
}

}  // namespace tandem::sim
