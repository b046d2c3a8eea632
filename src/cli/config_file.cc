#include "cli/config_file.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/arguments.h"

namespace tandem::cli {
namespace {

constexpr int kMaxDepth = 8;
constexpr int64_t kMaxNodes = 100'000;
constexpr size_t kMaxBytes = 1 << 20;  // of texts

Error unreadable(const std::string& file, std::string_view why) {
  return invalid_argument(fmt::format("the config file '{}' cannot be read: {}", file, why),
                          "config");
}

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  Status read(const YAML::Node& yaml, int depth, ConfigNode& node) {
    node.line = yaml.Mark().line + 1;
    if (yaml.IsScalar()) {
      bytes_ += yaml.Scalar().size();
    }
    if (depth > kMaxDepth || ++nodes_ > kMaxNodes || bytes_ > kMaxBytes) {
      return unreadable(file_, fmt::format("it holds more than {} values, {} bytes or {} levels of "
                                           "lists (line {})",
                                           kMaxNodes, kMaxBytes, kMaxDepth, node.line));
    }
    if (yaml.IsScalar()) {
      node.kind = ConfigNode::Kind::kText;
      node.text = yaml.Scalar();
    } else if (yaml.IsSequence()) {
      node.kind = ConfigNode::Kind::kList;
      for (const YAML::Node& item : yaml) {
        RETURN_IF_ERROR(read(item, depth + 1, node.inner.emplace_back()));
      }
    } else if (yaml.IsMap()) {
      node.kind = ConfigNode::Kind::kMap;
      for (const auto& entry : yaml) {
        RETURN_IF_ERROR(read(entry.second, depth + 1, node.inner.emplace_back()));
        node.inner.back().line = entry.first.Mark().line + 1;
        if (!entry.first.IsScalar()) {
          return unreadable(
              file_, fmt::format("the key in line {} is not a word", node.inner.back().line));
        }
        node.inner.back().key = entry.first.Scalar();
      }
    }
    return {};
  }

 private:
  const std::string& file_;
  int64_t nodes_ = 0;
  size_t bytes_ = 0;
};

// A text that YAML takes for nothing else without quotes.
bool is_plain(const std::string& text) {
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !text.empty() && (is_word(text.front()) || text.front() == '/') && text != "null" &&
         text != "Null" && text != "NULL" && std::ranges::all_of(text, [&](char c) {
           return is_word(c) || std::string_view("_./+;=-").find(c) != std::string_view::npos;
         });
}

std::string yaml_scalar(const std::string& text) {
  if (is_plain(text)) {
    return text;
  }
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

// In one line, as YAML's flow style has it.
std::string flow_text(const ConfigNode& node) {
  if (node.kind == ConfigNode::Kind::kNothing) {
    return "null";
  }
  if (node.kind == ConfigNode::Kind::kText) {
    return yaml_scalar(node.text);
  }
  const bool is_map = node.kind == ConfigNode::Kind::kMap;
  std::string out = is_map ? "{" : "[";
  for (const ConfigNode& inner : node.inner) {
    out += out.size() > 1 ? ", " : "";
    out += is_map ? yaml_scalar(inner.key) + ": " : "";
    out += flow_text(inner);
  }
  return out + (is_map ? "}" : "]");
}

Error at(const ConfigNode& entry, const std::string& file, const std::string& what) {
  return invalid_argument(fmt::format("the key '{}' in the config file '{}' (line {}) {}",
                                      entry.key, file, entry.line, what),
                          "config");
}

}  // namespace

Result<ConfigNode> parse_config(const std::string& text, const std::string& file) {
  ConfigNode root;
  try {
    const YAML::Node yaml = YAML::Load(text);
    if (!yaml.IsMap()) {
      return invalid_argument(
          fmt::format("the config file '{}' must hold keys and values, for example policy: sarathi",
                      file),
          "config");
    }
    RETURN_IF_ERROR(Reader(file).read(yaml, 0, root));
  } catch (const YAML::Exception& error) {
    return unreadable(file, fmt::format("line {}: {}", error.mark.line + 1, error.msg));
  } catch (const std::exception& error) {
    return unreadable(file, error.what());
  }
  return root;
}

Result<std::string> read_config_text(const std::string& file) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) {
    return unreadable(file, "it is a folder; name a YAML file");
  }
  if (!std::filesystem::exists(file, error)) {
    return unreadable(file, "there is no such file");
  }
  std::ifstream stream(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream) {
    return unreadable(file, "it cannot be opened; check its permissions");
  }
  return text;
}

std::string config_text(const ConfigNode& map) {
  std::string out;
  for (const ConfigNode& entry : map.inner) {
    out += yaml_scalar(entry.key) + ":";
    if (entry.kind == ConfigNode::Kind::kList && !entry.inner.empty()) {
      out += "\n";
      for (const ConfigNode& item : entry.inner) {
        out += "  - " + flow_text(item) + "\n";
      }
    } else {
      out += " " + flow_text(entry) + "\n";
    }
  }
  return out.empty() ? "{}\n" : out;
}

std::string flag_of_key(std::string_view key) {
  std::string flag = "--" + std::string(key);
  std::ranges::replace(flag, '_', '-');
  return flag;
}

Result<std::vector<std::string>> config_flags(const ConfigNode& map, const std::string& file,
                                              Command command) {
  std::vector<std::string> flags;
  for (const ConfigNode& entry : map.inner) {
    const std::string flag = flag_of_key(entry.key);
    if (!command.has_option(flag)) {
      return invalid_argument(
          fmt::format("unknown key '{}' in the config file '{}' (line {}){}", entry.key, file,
                      entry.line, nearest_key(entry.key, command)),
          "config");
    }
    const bool is_list = entry.kind == ConfigNode::Kind::kList;
    for (const ConfigNode& value : is_list ? entry.inner : std::vector<ConfigNode>(1, entry)) {
      if (value.kind == ConfigNode::Kind::kNothing) {
        return at(entry, file, "has no value; write one behind it or leave the key out");
      }
      if (value.kind != ConfigNode::Kind::kText) {
        return at(entry, file, "takes a text, a number or a list of them");
      }
      flags.push_back(flag + "=" + value.text);
    }
  }
  return flags;
}

}  // namespace tandem::cli
