#include "jinja/json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "jinja/compare.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

using Json = nlohmann::ordered_json;

Value text_from_json(const std::string& text, Work& work) {
  if (find_invalid_utf8(text)) fail("a text given to the chat template is not valid UTF-8");
  work.allocate(text.size() + 64);
  return Value::string(text);
}

Value value_from_json(const Json& json, int depth, Work& work) {
  if (depth > kMaxValueDepth)
    fail(fmt::format("the input is nested more than {} levels deep", kMaxValueDepth));
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      return Value::integer(json.get<uint64_t>());
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::string:
      return text_from_json(json.get_ref<const std::string&>(), work);
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(value_from_json(item, depth + 1, work));
      return make_list(std::move(items), work);
    }
    case Json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) {
        dict.set(text_from_json(key, work), value_from_json(item, depth + 1, work), work);
      }
      return make_dict(std::move(dict));
    }
    default:
      return {};
  }
}

std::string real_json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return real_text(value);
}

class JsonWriter {
 public:
  JsonWriter(const JsonFormat& format, Work& work) : format_(format), work_(work) {}

  void write(const Value& value, int level) {
    if (const Text* text = value.as_text()) {
      write_text(text->text);
    } else if (const Dict* dict = value.as_dict()) {
      write_dict(*dict, level);
    } else if (const Sequence* sequence = value.as_sequence();
               sequence != nullptr && is_array(*sequence)) {
      write_array(*sequence, level);
    } else if (value.is_none() || value.as_number()) {
      put(scalar(value));
    } else {
      fail(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
    }
  }

  std::string take() { return std::move(out_); }

 private:
  static bool is_array(const Sequence& sequence) {
    return sequence.kind == SequenceKind::kList || sequence.kind == SequenceKind::kTuple ||
           sequence.kind == SequenceKind::kGroup;
  }

  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* boolean = value.as_bool()) return *boolean ? "true" : "false";
    if (const auto integer = value.as_integer()) return integer_text(*integer);
    return real_json(*value.as_real());
  }

  void put(std::string_view text) {
    work_.allocate(text.size());
    work_.spend_on_bytes(text.size());
    out_ += text;
  }

  void new_line(int level) {
    if (!format_.indent) return;
    put("\n");
    for (int i = 0; i < level; ++i) put(*format_.indent);
  }

  void write_array(const Sequence& sequence, int level) {
    if (sequence.items.empty()) {
      put("[]");
      return;
    }
    put("[");
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (i != 0) put(format_.item_separator);
      new_line(level + 1);
      write(sequence.items[i], level + 1);
    }
    new_line(level);
    put("]");
  }

  std::vector<const Dict::Entry*> ordered_entries(const Dict& dict) {
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (!format_.sort_keys) return entries;
    merge_sort(entries, [this](const Dict::Entry* a, const Dict::Entry* b) {
      return less(a->key, b->key, "<", work_);
    });
    return entries;
  }

  void write_dict(const Dict& dict, int level) {
    if (dict.size() == 0) {
      put("{}");
      return;
    }
    put("{");
    bool first = true;
    for (const Dict::Entry* entry : ordered_entries(dict)) {
      if (!first) put(format_.item_separator);
      first = false;
      new_line(level + 1);
      if (const Text* text = entry->key.as_text()) {
        write_text(text->text);
      } else if (entry->key.is_none() || entry->key.as_number()) {
        put("\"" + scalar(entry->key) + "\"");
      } else {
        fail(fmt::format("keys must be str, int, float, bool or None, not {}",
                         type_name(entry->key)));
      }
      put(format_.key_separator);
      write(entry->value, level + 1);
    }
    new_line(level);
    put("}");
  }

  void write_text(std::string_view text) {
    work_.allocate(text.size() + 2);
    work_.spend_on_bytes(text.size());
    out_ += '"';
    for (size_t at = 0; at < text.size();) {
      const CodePoint point = decode_at(text, at);
      write_code_point(text.substr(at, point.bytes), static_cast<uint32_t>(point.code));
      at += point.bytes;
    }
    out_ += '"';
  }

  void write_code_point(std::string_view bytes, uint32_t code) {
    switch (code) {
      case '"':
        out_ += "\\\"";
        return;
      case '\\':
        out_ += "\\\\";
        return;
      case '\n':
        out_ += "\\n";
        return;
      case '\r':
        out_ += "\\r";
        return;
      case '\t':
        out_ += "\\t";
        return;
      case '\f':
        out_ += "\\f";
        return;
      case '\b':
        out_ += "\\b";
        return;
      default:
        break;
    }
    if (code < 0x20 || (format_.ascii_only && code >= 0x7F && code < 0x10000)) {
      out_ += fmt::format("\\u{:04x}", code);
    } else if (format_.ascii_only && code >= 0x10000) {
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10),
                          0xDC00 + ((code - 0x10000) & 0x3FF));
    } else {
      out_ += bytes;
    }
  }

  const JsonFormat& format_;
  Work& work_;
  std::string out_;
};

}  // namespace

Value from_json(const nlohmann::ordered_json& json, Work& work) {
  return value_from_json(json, 1, work);
}

std::string to_json(const Value& value, const JsonFormat& format, Work& work) {
  JsonWriter writer(format, work);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace tandem::jinja
