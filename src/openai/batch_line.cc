#include "openai/batch_line.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "openai/json_output.h"

namespace tandem::openai {

namespace {

constexpr size_t kMaxCustomIdBytes = 512;
constexpr std::string_view kIdPrefix = "batch_req_";
constexpr size_t kHashDigits = 16;

struct Fault {
  std::string_view code;
  Error error;
};

std::optional<Fault> read_custom_id(const FieldReader& fields, BatchLine& out) {
  Result<std::optional<std::string>> id = fields.string("custom_id");
  if (!id.ok()) {
    return Fault{"invalid_custom_id", id.error()};
  }
  if (!id->has_value() || (*id)->empty() || (*id)->size() > kMaxCustomIdBytes) {
    return Fault{"invalid_custom_id",
                 invalid_argument(fmt::format("'custom_id' must be a string of 1 to {} bytes that "
                                              "no other line of the file has",
                                              kMaxCustomIdBytes),
                                  "custom_id")};
  }
  out.custom_id = std::move(*id);
  return std::nullopt;
}

std::optional<Fault> read_method(const FieldReader& fields) {
  const Result<std::optional<std::string>> method = fields.string("method");
  if (!method.ok()) {
    return Fault{"invalid_method", method.error()};
  }
  if (method->value_or("POST") != "POST") {
    return Fault{"invalid_method", invalid_argument("'method' must be \"POST\"", "method")};
  }
  return std::nullopt;
}

std::optional<Fault> read_url(const FieldReader& fields, BatchLine& out) {
  const Result<std::optional<std::string>> url = fields.string("url");
  if (!url.ok()) {
    return Fault{"invalid_url", url.error()};
  }
  if (url->value_or("") == "/v1/chat/completions") {
    out.endpoint = Endpoint::kChat;
  } else if (url->value_or("") == "/v1/completions") {
    out.endpoint = Endpoint::kCompletions;
  } else {
    return Fault{"invalid_url",
                 invalid_argument("'url' must be /v1/chat/completions or /v1/completions", "url")};
  }
  return std::nullopt;
}

std::optional<Fault> read_body(const FieldReader& fields, BatchLine& out) {
  const Result<const Json*> body = fields.object("body");
  if (!body.ok()) {
    return Fault{"invalid_body", body.error()};
  }
  if (*body == nullptr) {
    return Fault{"invalid_body",
                 invalid_argument("'body' is missing; it holds what the url is sent", "body")};
  }
  const Json& object = **body;
  const auto stream = object.find("stream");
  if (stream != object.end() && *stream == true) {
    return Fault{"invalid_body",
                 invalid_argument("'body.stream' must be false: a batch line has one whole answer",
                                  "body.stream")};
  }
  out.body = object.dump(-1, ' ', false, Json::error_handler_t::replace);
  return std::nullopt;
}

// {"id":...,"custom_id":...
std::string line_head(const BatchLineId& id, const std::optional<std::string>& custom_id) {
  std::string out = R"({"id":")" + batch_request_id(id) + R"(","custom_id":)";
  if (custom_id.has_value()) {
    append_untrusted_string(out, *custom_id);
  } else {
    out += "null";
  }
  return out;
}

template <class Integer>
std::optional<Integer> parse_whole(std::string_view text, int base) {
  Integer value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (failure != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

// Takes what is asked of a written line out of its parse and keeps nothing else: an answer with the
// likeliest tokens of thousands has millions of values.
class WrittenLineReader final : public nlohmann::json_sax<Json> {
 public:
  std::string id;
  std::optional<std::string> custom_id;
  std::string error_code;
  int64_t status_code = 0;
  bool has_response = false;

  bool null() override { return scalar(); }
  bool boolean(bool) override { return scalar(); }
  bool number_integer(number_integer_t) override { return scalar(); }
  bool number_unsigned(number_unsigned_t number) override {
    if (place() == "response.status_code" && number <= 999) {
      status_code = static_cast<int64_t>(number);
    }
    return scalar();
  }
  bool number_float(number_float_t, const string_t&) override { return scalar(); }
  bool string(string_t& text) override {
    if (place() == "id") {
      id = std::move(text);
    } else if (place() == "custom_id") {
      custom_id = std::move(text);
    } else if (place() == "error.code") {
      error_code = std::move(text);
    }
    return scalar();
  }
  bool binary(binary_t&) override { return false; }
  bool key(string_t& name) override {
    if (depth_ == 1) {
      member_ = std::move(name);
      has_response = has_response || member_ == "response";
    } else if (depth_ == 2) {
      inner_ = std::move(name);
    }
    return true;
  }
  bool start_object(size_t) override { return open(); }
  bool end_object() override { return close(); }
  // The outermost value is an object.
  bool start_array(size_t) override { return depth_ > 0 && open(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  // "id", "response.status_code"; nothing of what lies deeper.
  [[nodiscard]] std::string place() const {
    return depth_ == 1 ? member_ : depth_ == 2 ? member_ + "." + inner_ : std::string();
  }
  [[nodiscard]] bool scalar() const { return depth_ > 0; }
  bool open() {
    ++depth_;
    inner_.clear();
    return true;
  }
  bool close() {
    --depth_;
    inner_.clear();
    return true;
  }

  int64_t depth_ = 0;
  std::string member_;  // the key of the line's object that is being read
  std::string inner_;   // the key of that member's object
};

Error not_ours() { return invalid_argument("is not a line that `tandem batch run` writes"); }

}  // namespace

BatchLine parse_batch_line(std::string_view line, const JsonLimits& limits) {
  BatchLine out;
  const auto fail = [&](std::string_view code, Error error) {
    out.error_code = code;
    out.error = std::move(error);
  };
  // The line's own object is one level around the body.
  const Result<Json> json = parse_object(
      line, {.max_depth = limits.max_depth + 1, .max_object_keys = limits.max_object_keys},
      "the line");
  if (!json.ok()) {
    fail("invalid_json", json.error());
    return out;
  }
  const FieldReader fields(*json);
  std::optional<Fault> fault = read_custom_id(fields, out);
  if (!fault) fault = read_method(fields);
  if (!fault) fault = read_url(fields, out);
  if (!fault) fault = read_body(fields, out);
  if (fault) {
    fail(fault->code, std::move(fault->error));
  }
  return out;
}

// FNV-1a, 64 bits: tells lines apart, but does not protect against crafted collisions.
uint64_t hash_of_line(std::string_view line, uint64_t before) {
  uint64_t hash = before;
  for (const char c : line) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  return hash;
}

std::string batch_request_id(const BatchLineId& id) {
  return fmt::format("{}{}_{:016x}", kIdPrefix, id.number, id.hash);
}

std::optional<BatchLineId> parse_batch_request_id(std::string_view text) {
  if (!text.starts_with(kIdPrefix)) {
    return std::nullopt;
  }
  text.remove_prefix(kIdPrefix.size());
  const size_t middle = text.find('_');
  if (middle == std::string_view::npos || text.size() - middle - 1 != kHashDigits) {
    return std::nullopt;
  }
  const auto number = parse_whole<int64_t>(text.substr(0, middle), 10);
  const auto hash = parse_whole<uint64_t>(text.substr(middle + 1), 16);
  if (!number || *number < 1 || !hash) {
    return std::nullopt;
  }
  return BatchLineId{*number, *hash};
}

std::string answered_batch_line(const BatchLineId& id, const std::optional<std::string>& custom_id,
                                int http_status, std::string_view body) {
  std::string out = line_head(id, custom_id);
  out += fmt::format(R"(,"response":{{"status_code":{},"request_id":"{}","body":)", http_status,
                     batch_request_id(id));
  out += body;
  out += "},\"error\":null}\n";
  return out;
}

std::string failed_batch_line(const BatchLineId& id, const std::optional<std::string>& custom_id,
                              std::string_view code, std::string_view message) {
  std::string out = line_head(id, custom_id);
  out += R"(,"response":null,"error":{"code":)";
  append_untrusted_string(out, code);
  out += R"(,"message":)";
  append_untrusted_string(out, message);
  out += "}}\n";
  return out;
}

Result<WrittenBatchLine> parse_written_batch_line(std::string_view line) {
  WrittenLineReader reader;
  if (!Json::sax_parse(line.begin(), line.end(), &reader) || !reader.has_response) {
    return not_ours();
  }
  const auto id = parse_batch_request_id(reader.id);
  if (!id) {
    return not_ours();
  }
  return WrittenBatchLine{.id = *id,
                          .custom_id = std::move(reader.custom_id),
                          .failed = reader.status_code != 200,
                          .error_code = std::move(reader.error_code)};
}

}  // namespace tandem::openai
