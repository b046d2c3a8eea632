// Builds an ordered Json from what the library's parser reads. The library's own builder looks for
// every key among those before it, which takes time in the square of an object's keys; this one
// takes n log n. Not here: limits and error texts (json_input.h). Threads: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "openai/json_input.h"

namespace tandem::openai {

// The interface of nlohmann::json_sax. One use each.
class JsonBuilder {
 public:
  bool null() { return add(Json()); }
  bool boolean(bool value) { return add(Json(value)); }
  bool number_integer(int64_t value) { return add(Json(value)); }
  bool number_unsigned(uint64_t value) { return add(Json(value)); }
  bool number_float(double value, const std::string& /*text*/) { return add(Json(value)); }
  bool string(const std::string& value) { return add(Json(value)); }
  bool binary(const Json::binary_t& value) { return add(Json(value)); }
  bool start_object(size_t /*size*/) { return open(Kind::kObject); }
  bool start_array(size_t /*size*/) { return open(Kind::kArray); }
  bool key(const std::string& name) {
    members_.push_back({name, Json()});
    return true;
  }
  bool end_object();
  bool end_array();
  bool parse_error(size_t position, const std::string& last_token, const Json::exception& error);

  // After a parse that succeeded.
  [[nodiscard]] Json take() && { return std::move(root_); }
  // After one that failed.
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  enum class Kind : uint8_t { kObject, kArray };
  struct Member {
    std::string name;
    Json value;
  };
  // A list or object that is not closed yet.
  struct Frame {
    Kind kind = Kind::kArray;
    size_t first_member = 0;  // of an object, in members_
    Json::array_t values;     // of a list
  };

  bool open(Kind kind) {
    frames_.push_back({.kind = kind, .first_member = members_.size(), .values = {}});
    return true;
  }
  bool add(Json value);
  [[nodiscard]] size_t drop_repeated_names(size_t first);

  std::vector<Frame> frames_;
  std::vector<Member> members_;  // of all open objects; the innermost one's are last
  Json root_;
  std::string error_;
};

}  // namespace tandem::openai
