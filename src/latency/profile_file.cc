// Profiles as JSON.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "latency/profile.h"
#include "latency/profile_fields.h"

namespace tandem::latency {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using Fields = ProfileFields;

constexpr int32_t kVersion = 1;
constexpr size_t kMostBytes = size_t{4} << 20;  // of a file; real ones are some kilobytes
constexpr int64_t kMostCount = int64_t{1} << 40;

// ---------------------------------------------------------------- writing

ordered_json points_json(const Ladder& ladder) {
  ordered_json points = ordered_json::array();
  for (const LadderPoint& point : ladder.points()) {
    points.push_back({point.rows, point.nanos});
  }
  return points;
}

ordered_json accuracy_json(const Accuracy& accuracy) {
  return {{"batches", accuracy.batches},
          {"mean", accuracy.mean},
          {"p90", accuracy.p90},
          {"p99", accuracy.p99}};
}

ordered_json line_json(const AlphaBeta& line) {
  return {{"alpha", line.alpha_nanos}, {"beta", line.beta_nanos}};
}

ordered_json modular_json(const ModularCosts& costs) {
  return {{"layers", costs.layers},
          {"fixed", costs.fixed},
          {"first_stage_share", costs.first_stage_share},
          {"dense", points_json(costs.dense)},
          {"head", points_json(costs.head)},
          {"prefill",
           {{"per_pair", costs.prefill.per_pair},
            {"per_row", costs.prefill.per_row},
            {"per_slice", costs.prefill.per_slice},
            {"fixed", costs.prefill.fixed}}},
          {"decode",
           {{"per_context", costs.decode.per_context},
            {"per_row", costs.decode.per_row},
            {"fixed", costs.decode.fixed}}},
          {"per_visit", costs.per_visit},
          {"collective", line_json(costs.collective)}};
}

ordered_json regression_json(const RegressionCosts& costs) {
  return {{"layers", costs.layers},
          {"fixed", costs.fixed},
          {"prefill_rows", costs.prefill_rows},
          {"decode_context", costs.decode_context},
          {"prefill_rows_squared", costs.prefill_rows_squared},
          {"decode_context_squared", costs.decode_context_squared},
          {"prefill_slices", costs.prefill_slices},
          {"decode_rows", costs.decode_rows},
          {"prefix_products", costs.prefix_products}};
}

ordered_json table_json(const TableCosts& costs) {
  ordered_json rows = ordered_json::array();
  for (const DecodeRow& row : costs.decode) {
    rows.push_back({{"sequences", row.sequences}, {"by_context", points_json(row.by_context)}});
  }
  return {{"layers", costs.layers},
          {"prefill", points_json(costs.prefill)},
          {"prefix_products", costs.prefix_products},
          {"decode", std::move(rows)}};
}

ordered_json host_json(const HostTimes& host) {
  return {{"attention",
           {{"per_context", host.attention.per_context_nanos},
            {"per_row", host.attention.per_row_nanos},
            {"fixed", host.attention.fixed_nanos}}},
          {"to_host", line_json(host.to_host)},
          {"from_host", line_json(host.from_host)},
          {"launch",
           {{"per_group", host.launch.per_group_nanos},
            {"per_visit", host.launch.per_visit_nanos},
            {"per_lane_stage", host.launch.per_lane_stage_nanos}}},
          {"busy",
           {{"per_context", host.busy.per_context_nanos}, {"per_row", host.busy.per_row_nanos}}},
          {"hop_bytes", {{"to_host", host.hop.to_host}, {"from_host", host.hop.from_host}}}};
}

ordered_json choices_json(const std::vector<TunedChoice>& choices) {
  ordered_json out = ordered_json::array();
  for (const TunedChoice& each : choices) {
    out.push_back({{"work", each.work},
                   {"way", each.way},
                   {"choice", each.choice},
                   {"us", each.us},
                   {"usual_us", each.usual_us}});
  }
  return out;
}

// ---------------------------------------------------------------- reading

int32_t layers_of(Fields& fields) {
  constexpr int64_t kMost = 10'000;
  return static_cast<int32_t>(fields.count("layers", 1, kMost));
}

ModularCosts read_modular(Fields fields) {
  ModularCosts costs;
  costs.layers = layers_of(fields);
  costs.fixed = fields.number("fixed");
  costs.first_stage_share = fields.number("first_stage_share");
  costs.dense = fields.ladder("dense");
  costs.head = fields.ladder("head");
  Fields prefill = fields.object("prefill");
  costs.prefill = {.per_pair = prefill.number("per_pair"),
                   .per_row = prefill.number("per_row"),
                   .per_slice = prefill.number("per_slice"),
                   .fixed = prefill.number("fixed")};
  Fields decode = fields.object("decode");
  costs.decode = {.per_context = decode.number("per_context"),
                  .per_row = decode.number("per_row"),
                  .fixed = decode.number("fixed")};
  costs.per_visit = fields.number("per_visit");
  costs.collective = fields.line("collective");
  return costs;
}

RegressionCosts read_regression(Fields fields) {
  return {.layers = layers_of(fields),
          .fixed = fields.number("fixed"),
          .prefill_rows = fields.number("prefill_rows"),
          .decode_context = fields.number("decode_context"),
          .prefill_rows_squared = fields.number("prefill_rows_squared"),
          .decode_context_squared = fields.number("decode_context_squared"),
          .prefill_slices = fields.number("prefill_slices"),
          .decode_rows = fields.number("decode_rows"),
          .prefix_products = fields.number("prefix_products")};
}

TableCosts read_table(Fields fields, Status& status) {
  TableCosts costs;
  costs.layers = layers_of(fields);
  costs.prefill = fields.ladder("prefill");
  costs.prefix_products = fields.number("prefix_products");
  const json* rows = fields.list("decode", TableModel::kMostRows);
  for (size_t i = 0; rows != nullptr && i < rows->size() && status.ok(); ++i) {
    Fields row((*rows)[i], fmt::format("table.decode[{}]", i), status);
    const int64_t sequences = row.count("sequences", 1, kMostCount);
    costs.decode.push_back({sequences, row.ladder("by_context")});
  }
  return costs;
}

Accuracy read_accuracy(Fields fields) {
  return {.batches = fields.count("batches", 0, kMostCount),
          .mean = fields.number("mean"),
          .p90 = fields.number("p90"),
          .p99 = fields.number("p99")};
}

HostTimes read_host(Fields fields) {
  Fields attention = fields.object("attention");
  HostTimes host;
  host.attention = {.per_context_nanos = attention.number("per_context"),
                    .per_row_nanos = attention.number("per_row"),
                    .fixed_nanos = attention.number("fixed")};
  attention.check_time("per_context", host.attention.per_context_nanos);
  attention.check_time("per_row", host.attention.per_row_nanos);
  attention.check_time("fixed", host.attention.fixed_nanos);
  host.to_host = fields.line("to_host");
  host.from_host = fields.line("from_host");
  Fields launch = fields.object("launch");
  host.launch = {.per_group_nanos = launch.number("per_group"),
                 .per_visit_nanos = launch.number("per_visit")};
  launch.check_time("per_group", host.launch.per_group_nanos);
  launch.check_time("per_visit", host.launch.per_visit_nanos);
  // Files of before lanes were measured know groups of four stages, the default.
  constexpr double kStagesOfAGroup = 4;
  host.launch.per_lane_stage_nanos = launch.has("per_lane_stage")
                                         ? launch.number("per_lane_stage")
                                         : host.launch.per_group_nanos / kStagesOfAGroup;
  launch.check_time("per_lane_stage", host.launch.per_lane_stage_nanos);
  if (fields.has("busy")) {
    Fields busy = fields.object("busy");
    host.busy = {.per_context_nanos = busy.number("per_context"),
                 .per_row_nanos = busy.number("per_row")};
    busy.check_time("per_context", host.busy.per_context_nanos);
    busy.check_time("per_row", host.busy.per_row_nanos);
  }
  if (fields.has("hop_bytes")) {
    Fields hop = fields.object("hop_bytes");
    host.hop = {.to_host = hop.number("to_host"), .from_host = hop.number("from_host")};
    hop.check_time("to_host", host.hop.to_host);
    hop.check_time("from_host", host.hop.from_host);
  }
  return host;
}

ProfileIdentity read_identity(Fields fields) {
  constexpr int64_t kMostThreads = 1 << 20;
  return {.model = fields.text("model"),
          .model_digest = fields.text("model_digest"),
          .device = fields.text("device"),
          .cpu = fields.text("cpu"),
          .isa = fields.text("isa"),
          .threads = static_cast<int32_t>(fields.count("threads", 1, kMostThreads)),
          .dtype = fields.text("dtype"),
          .kv_dtype = fields.text("kv_dtype"),
          .build = fields.has("build") ? fields.text("build") : ""};  // not in earlier files
}

// Files of before these limits were written have none.
StepLimits read_limits(Fields fields) {
  constexpr int64_t kMost = 1 << 30;
  const auto count = [&](const char* name) {
    return static_cast<int32_t>(fields.count(name, 0, kMost));
  };
  return {.rows = count("rows"), .sequences = count("sequences"), .context = count("context")};
}

// Files of devices that choose nothing have none.
std::vector<TunedChoice> read_choices(Fields& fields, Status& status) {
  constexpr size_t kMaxChoices = 4096;
  constexpr int64_t kMaxChoice = 64;
  std::vector<TunedChoice> choices;
  if (!fields.has("choices")) {
    return choices;
  }
  const json* list = fields.list("choices", kMaxChoices);
  for (size_t i = 0; list != nullptr && i < list->size() && status.ok(); ++i) {
    Fields each((*list)[i], fmt::format("choices[{}]", i), status);
    choices.push_back({.work = each.text("work"),
                       .way = each.text("way"),
                       .choice = static_cast<int32_t>(each.count("choice", 0, kMaxChoice)),
                       .us = each.number("us"),
                       .usual_us = each.number("usual_us")});
  }
  return choices;
}

// What the models themselves check: coefficients that are negative or too large.
Status check_models(const Profile& profile) {
  for (const TimeModel which : {TimeModel::kModular, TimeModel::kRegression, TimeModel::kTable}) {
    const auto model = make_time_model(profile, which);
    if (!model.ok()) {
      return invalid_argument(fmt::format("{}: {}", time_model_name(which), model.error().message),
                              "profile");
    }
  }
  return {};
}

Error io_error(const std::filesystem::path& path, const char* what) {
  return {ErrorCode::kIo,
          fmt::format("cannot {} the profile '{}': {}", what, path.string(),
                      std::generic_category().message(errno)),
          "profile"};
}

}  // namespace

std::string profile_text(const Profile& profile) {
  const ProfileIdentity& identity = profile.identity;
  ordered_json out;
  out["tandem_profile"] = kVersion;
  out["date"] = profile.date;
  out["identity"] = {{"model", identity.model},   {"model_digest", identity.model_digest},
                     {"device", identity.device}, {"cpu", identity.cpu},
                     {"isa", identity.isa},       {"threads", identity.threads},
                     {"dtype", identity.dtype},   {"kv_dtype", identity.kv_dtype},
                     {"build", identity.build}};
  out["batches"] = profile.batches;
  out["most_rows"] = profile.most_rows;
  out["limits"] = {{"rows", profile.limits.rows},
                   {"sequences", profile.limits.sequences},
                   {"context", profile.limits.context}};
  out["unit"] = "nanoseconds";
  out["modular"] = modular_json(profile.modular);
  out["regression"] = regression_json(profile.regression);
  out["table"] = table_json(profile.table);
  out["host"] = profile.host.has_value() ? host_json(*profile.host) : ordered_json(nullptr);
  if (!profile.choices.empty()) {
    out["choices"] = choices_json(profile.choices);
  }
  out["accuracy"] = {{"modular", accuracy_json(profile.accuracy.modular)},
                     {"regression", accuracy_json(profile.accuracy.regression)},
                     {"table", accuracy_json(profile.accuracy.table)},
                     {"same_batch_twice", accuracy_json(profile.accuracy.repeatability)}};
  return out.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Result<Profile> parse_profile(std::string_view text) {
  if (text.size() > kMostBytes) {
    return invalid_argument(
        fmt::format("it has {} bytes, more than any profile ({})", text.size(), kMostBytes),
        "profile");
  }
  const json parsed = json::parse(text, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("tandem_profile")) {
    return invalid_argument("it is not a profile: no JSON object with the field tandem_profile",
                            "profile");
  }
  Status status;
  Fields fields(parsed, "", status);
  const int64_t version = fields.count("tandem_profile", 0, kMostCount);
  if (status.ok() && version != kVersion) {
    return invalid_argument(
        fmt::format("its version is {}, this program reads {}; measure again with tandem profile",
                    version, kVersion),
        "profile");
  }
  Profile profile;
  profile.date = fields.text("date");
  profile.identity = read_identity(fields.object("identity"));
  profile.batches = fields.count("batches", 0, kMostCount);
  profile.most_rows = static_cast<int32_t>(fields.count("most_rows", 0, 1 << 30));
  if (parsed.contains("limits")) {
    profile.limits = read_limits(fields.object("limits"));
  }
  profile.modular = read_modular(fields.object("modular"));
  profile.regression = read_regression(fields.object("regression"));
  profile.table = read_table(fields.object("table"), status);
  Fields accuracy = fields.object("accuracy");
  profile.accuracy = {.modular = read_accuracy(accuracy.object("modular")),
                      .regression = read_accuracy(accuracy.object("regression")),
                      .table = read_accuracy(accuracy.object("table")),
                      .repeatability = read_accuracy(accuracy.object("same_batch_twice"))};
  if (parsed.contains("host") && !parsed["host"].is_null()) {
    profile.host = read_host(fields.object("host"));
  }
  profile.choices = read_choices(fields, status);
  RETURN_IF_ERROR(status);
  if (profile.regression.layers != profile.modular.layers ||
      profile.table.layers != profile.modular.layers) {
    return invalid_argument("its models disagree about the number of layers", "profile");
  }
  RETURN_IF_ERROR(check_models(profile));
  return profile;
}

Status write_profile(const Profile& profile, const std::filesystem::path& path) {
  std::error_code error;
  if (path.has_parent_path()) {
    std::filesystem::create_directories(path.parent_path(), error);  // writing says what is wrong
  }
  const std::filesystem::path part = fmt::format("{}.{}.part", path.string(), ::getpid());
  {
    std::ofstream file(part, std::ios::binary | std::ios::trunc);
    file << profile_text(profile);
    file.flush();
    if (!file.good()) {
      const Error failed = io_error(path, "write");
      std::filesystem::remove(part, error);
      return failed;
    }
  }
  if (::rename(part.c_str(), path.c_str()) != 0) {
    const Error failed = io_error(path, "write");
    std::filesystem::remove(part, error);
    return failed;
  }
  return {};
}

Result<Profile> read_profile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) {
    return io_error(path, "read");
  }
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) {
    return io_error(path, "read");
  }
  text.resize(static_cast<size_t>(file.gcount()));
  Result<Profile> profile = parse_profile(text);
  if (!profile.ok()) {
    return invalid_argument(
        fmt::format("the profile '{}' cannot be used: {}", path.string(), profile.error().message),
        "profile");
  }
  return profile;
}

}  // namespace tandem::latency
