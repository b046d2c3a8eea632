// A file of options in YAML: keys with texts, lists and maps, each with its line number, so
// that an error can name it. A key is a flag without its dashes; a list gives the flag several
// times. YAML's anchors are followed; what they may grow to is bounded. Plain data. Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/command.h"

namespace tandem::cli {

struct ConfigNode {
  enum class Kind : uint8_t { kNothing, kText, kList, kMap };
  std::string key;  // in a map
  Kind kind = Kind::kNothing;
  std::string text;
  std::vector<ConfigNode> inner;  // of a list or a map, in the order of the file
  int line = 0;                   // from 1; 0: not from a file
};

// The map that the text holds. Errors name `file`.
Result<ConfigNode> parse_config(const std::string& text, const std::string& file);
Result<std::string> read_config_text(const std::string& file);

// The map as YAML. parse_config gives the same map, with other lines.
std::string config_text(const ConfigNode& map);

// The keys as "--key=value". An unknown key is an error that names the nearest flag of `command`.
Result<std::vector<std::string>> config_flags(const ConfigNode& map, const std::string& file,
                                              Command command);

// "max_num_seqs" and "max-num-seqs" are "--max-num-seqs".
std::string flag_of_key(std::string_view key);

}  // namespace tandem::cli
