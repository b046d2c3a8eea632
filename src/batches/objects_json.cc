#include "batches/objects_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_values.h"
#include "base/utf8.h"
#include "openai/json_output.h"

namespace tandem::batches {
namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::optional<int64_t>& number) { return number ? Json(*number) : Json(); }
Json or_null(const std::optional<std::string>& text) { return text ? Json(*text) : Json(); }
Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

// Names of files come from outside.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json faults_of(const std::vector<BatchFault>& faults) {
  Json list = Json::array();
  for (const BatchFault& fault : faults) {
    list.push_back({{"code", fault.code},
                    {"line", or_null(fault.line)},
                    {"message", fault.message},
                    {"param", or_null(fault.param)}});
  }
  return list;
}

Json metadata_of(const Metadata& metadata) {
  Json object = Json::object();
  for (const auto& [name, value] : metadata) {
    object[name] = value;
  }
  return object;
}

// Shallow, or nothing.
Json parse_shallow(std::string_view text) {
  constexpr int32_t kMaxDepth = 4;
  if (json_nests_deeper(text, kMaxDepth)) {
    return {};
  }
  Json json = Json::parse(text, nullptr, false);
  return json.is_discarded() ? Json() : json;
}

}  // namespace

std::optional<BatchState> parse_state(std::string_view name) {
  const auto found = std::ranges::find(kBatchStates, name);
  return found == kBatchStates.end()
             ? std::nullopt
             : std::optional(static_cast<BatchState>(found - kBatchStates.begin()));
}

std::string first_chars(std::string_view text, size_t max) {
  const Utf8Tail tail = text.size() > max ? Utf8Tail::kMayGrow : Utf8Tail::kIsFinal;
  std::string chars;
  append_repaired_utf8(text.substr(0, max), tail, InvalidBytes::kOnePerSequence, chars);
  while (chars.size() > max) {  // a replacement is longer than the byte
    chars.resize(last_char_begin(chars));
  }
  return chars;
}

std::string shown(std::string_view text) {
  constexpr size_t kMaxShown = 40;  // docs/security.md
  return first_chars(text, kMaxShown) + (text.size() > kMaxShown ? "..." : "");
}

std::string file_json(const FileObject& file) {
  Json json = {{"id", file.id},
               {"object", "file"},
               {"bytes", file.bytes},
               {"created_at", file.created_at},
               {"expires_at", or_null(file.expires_at)},
               {"filename", file.filename},
               {"purpose", file.purpose},
               {"status", "processed"},
               {"status_details", Json()}};
  return dump(json);
}

std::string batch_json(const BatchObject& batch, const BatchOutlook& outlook) {
  const auto ended_as = [&batch](BatchState state) {
    return batch.state == state ? or_null(batch.ended_at) : Json();
  };
  Json errors;
  if (!batch.faults.empty()) {
    errors = {{"object", "list"}, {"data", faults_of(batch.faults)}};
  }
  Json json = {{"id", batch.id},
               {"object", "batch"},
               {"endpoint", batch.endpoint},
               {"errors", errors},
               {"input_file_id", batch.input_file_id},
               {"completion_window", batch.completion_window},
               {"status", state_name(batch.state)},
               {"output_file_id", or_null(batch.output_file_id)},
               {"error_file_id", or_null(batch.error_file_id)},
               {"created_at", batch.created_at},
               {"in_progress_at", or_null(batch.in_progress_at)},
               {"expires_at", batch.expires_at},
               {"finalizing_at", or_null(batch.finalizing_at)},
               {"completed_at", ended_as(BatchState::kCompleted)},
               {"failed_at", ended_as(BatchState::kFailed)},
               {"expired_at", ended_as(BatchState::kExpired)},
               {"cancelling_at", or_null(batch.cancelling_at)},
               {"cancelled_at", ended_as(BatchState::kCancelled)},
               {"request_counts",
                {{"total", batch.counts.total},
                 {"completed", batch.counts.completed},
                 {"failed", batch.counts.failed}}},
               {"metadata", batch.metadata.empty() ? Json() : metadata_of(batch.metadata)}};
  json["tandem"] = {{"estimated_completion_at", or_null(outlook.ends_at)},
                    {"paused", or_null(outlook.paused)}};
  return dump(json);
}

std::string deleted_json(std::string_view file_id) {
  return dump({{"id", file_id}, {"object", "file"}, {"deleted", true}});
}

std::string list_json(std::span<const std::string> objects, std::span<const std::string> ids,
                      bool has_more) {
  std::string json = R"({"object":"list","data":[)";
  for (size_t i = 0; i < objects.size(); ++i) {
    json += i == 0 ? "" : ",";
    json += objects[i];
  }
  json += R"(],"first_id":)";
  json += ids.empty() ? "null" : dump(ids.front());
  json += R"(,"last_id":)";
  json += ids.empty() ? "null" : dump(ids.back());
  json += has_more ? R"(,"has_more":true})" : R"(,"has_more":false})";
  return json;
}

std::string metadata_json(const Metadata& metadata) { return dump(metadata_of(metadata)); }

std::string faults_json(const std::vector<BatchFault>& faults) { return dump(faults_of(faults)); }

std::string names_json(const std::vector<std::string>& names) { return dump(Json(names)); }

Metadata parse_metadata(std::string_view json) {
  Metadata metadata;
  const Json object = parse_shallow(json);
  if (!object.is_object()) {
    return metadata;
  }
  for (const auto& item : object.items()) {
    if (item.value().is_string()) {
      metadata.emplace_back(item.key(), item.value().get<std::string>());
    }
  }
  return metadata;
}

std::vector<BatchFault> parse_faults(std::string_view json) {
  std::vector<BatchFault> faults;
  const Json list = parse_shallow(json);
  if (!list.is_array()) {
    return faults;
  }
  for (const Json& item : list) {
    if (!item.is_object()) {
      continue;
    }
    const auto text = [&item](const char* name) {
      const Json* value = json_member(item, name);
      return value == nullptr ? std::string() : json_string(*value).value_or("");
    };
    const Json* line = json_member(item, "line");
    faults.push_back({.code = text("code"),
                      .message = text("message"),
                      .param = text("param"),
                      .line = line == nullptr ? std::nullopt : json_integer(*line)});
  }
  return faults;
}

std::vector<std::string> parse_names(std::string_view json) {
  std::vector<std::string> names;
  const Json list = parse_shallow(json);
  if (!list.is_array()) {
    return names;
  }
  for (const Json& item : list) {
    if (item.is_string()) {
      names.push_back(item.get<std::string>());
    }
  }
  return names;
}

}  // namespace tandem::batches
