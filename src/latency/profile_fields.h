// Reads the fields of a profile file, with errors that name them. Used by profile_file.cc.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_values.h"
#include "base/result.h"
#include "latency/host_times.h"
#include "latency/ladder.h"

namespace tandem::latency {

// An object of the file, and the way to it for messages: "modular.prefill". The first thing that is
// wrong stays; what is read after it is 0 or empty.
class ProfileFields {
 public:
  static constexpr size_t kMaxPoints = 4096;  // points of a ladder
  static constexpr size_t kMaxText = 1024;    // bytes of a text

  ProfileFields(const nlohmann::json& object, std::string path, Status& status)
      : object_(object), path_(std::move(path)), status_(status) {
    if (!object.is_object()) {
      fail("", "must be an object");
    }
  }

  [[nodiscard]] bool has(const char* name) const { return object_.contains(name); }
  double number(const char* name) {
    const nlohmann::json* value = find(name);
    if (value == nullptr) {
      return 0;
    }
    const std::optional<double> number = json_number(*value);
    if (!number) {
      fail(name, "must be a number");
    }
    return number.value_or(0);
  }
  int64_t count(const char* name, int64_t least, int64_t most) {
    const double value = number(name);
    if (status_.ok() && (value != std::floor(value) || value < static_cast<double>(least) ||
                         value > static_cast<double>(most))) {
      fail(name, fmt::format("is {}; it must be a whole number from {} to {}", value, least, most));
    }
    return status_.ok() ? static_cast<int64_t>(value) : 0;
  }
  std::string text(const char* name) {
    const nlohmann::json* value = find(name);
    if (value == nullptr) {
      return {};
    }
    std::optional<std::string> text = json_string(*value);
    if (!text || text->size() > kMaxText) {
      fail(name, fmt::format("must be a string of at most {} bytes", kMaxText));
      return {};
    }
    return *std::move(text);
  }
  ProfileFields object(const char* name) {
    static const nlohmann::json kEmpty = nlohmann::json::object();
    const nlohmann::json* value = find(name);
    return {value == nullptr ? kEmpty : *value, path_of(name), status_};
  }
  const nlohmann::json* list(const char* name, size_t most) {
    const nlohmann::json* value = find(name);
    if (value != nullptr && (!value->is_array() || value->empty() || value->size() > most)) {
      fail(name, fmt::format("must be a list of 1 to {} entries", most));
      return nullptr;
    }
    return value;
  }
  // A list of [rows, nanoseconds].
  Ladder ladder(const char* name) {
    const nlohmann::json* points = list(name, kMaxPoints);
    std::vector<LadderPoint> found;
    for (size_t i = 0; points != nullptr && i < points->size(); ++i) {
      const nlohmann::json& point = (*points)[i];
      const bool pair = point.is_array() && point.size() == 2;
      const std::optional<int64_t> point_rows = pair ? json_integer(point[0]) : std::nullopt;
      const std::optional<double> nanos = pair ? json_number(point[1]) : std::nullopt;
      if (!point_rows || !nanos) {
        fail(name, "must hold pairs of a whole number and nanoseconds");
        return {};
      }
      found.push_back({*point_rows, *nanos});
      if (i > 0 && (found[i].rows <= found[i - 1].rows || found[i].nanos < found[i - 1].nanos)) {
        fail(name, fmt::format("falls from point {} to the next; more must not be cheaper", i));
        return {};
      }
    }
    if (!status_.ok()) {
      return {};
    }
    Result<Ladder> ladder = Ladder::through(std::move(found));
    if (!ladder.ok()) {
      fail(name, ladder.error().message);
      return {};
    }
    return *std::move(ladder);
  }
  AlphaBeta line(const char* name) {
    ProfileFields fields = object(name);
    const AlphaBeta line{.alpha_nanos = fields.number("alpha"),
                         .beta_nanos = fields.number("beta")};
    fields.check_time("alpha", line.alpha_nanos);
    fields.check_time("beta", line.beta_nanos);
    return line;
  }
  void check_time(const char* name, double nanos) {
    constexpr double kMost = 1e15;
    if (!(nanos >= 0 && nanos <= kMost)) {
      fail(name, fmt::format("is {}; it must be between 0 and {:g}", nanos, kMost));
    }
  }

 private:
  const nlohmann::json* find(const char* name) {
    if (!status_.ok()) {
      return nullptr;
    }
    const nlohmann::json* value = object_.is_object() ? json_member(object_, name) : nullptr;
    if (value == nullptr) {
      fail(name, "is missing");
    }
    return value;
  }
  [[nodiscard]] std::string path_of(const std::string& name) const {
    return path_.empty() ? name : name.empty() ? path_ : path_ + "." + name;
  }
  void fail(const std::string& name, const std::string& what) {
    if (status_.ok()) {
      const std::string path = path_of(name);
      status_ = invalid_argument(fmt::format("{} {}", path.empty() ? "the profile" : path, what),
                                 "profile");
    }
  }

  const nlohmann::json& object_;
  const std::string path_;
  Status& status_;
};

}  // namespace tandem::latency
