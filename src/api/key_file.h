// The file of API keys: one key a line, and behind it, set apart by spaces, what requests with that
// key get and may claim.
//
//   sk-plain
//   sk-chat    class=latency_sensitive ttft=500ms+2ms/tok,max=8s tpot=50ms
//   sk-batch   max-class=best_effort
//   sk-others  min-level=0 min-ttft=1s min-tpot=100ms
//
// Empty lines and lines that begin with # do not count. Errors name file, line and setting, never a
// key. Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/api_keys.h"
#include "base/result.h"

namespace tandem::api {

// `path` is for errors.
[[nodiscard]] Result<std::vector<ApiKey>> parse_key_file(std::string_view text,
                                                         std::string_view path);
[[nodiscard]] Result<std::vector<ApiKey>> read_key_file(const std::string& path);

// Where a server's keys come from.
struct KeySources {
  std::vector<std::string> given;  // keys that get nothing of their own
  std::string file;                // empty: none
};
// Reads the file anew. If a key is in both, what the file says of it counts.
[[nodiscard]] Result<std::vector<ApiKey>> read_keys(const KeySources& sources);

// One line of it: a name, empty where the line is, and its settings. Errors do not show the name.
struct NamedGrant {
  std::string name;
  ServiceGrant grant;
};
enum class GrantOf : uint8_t {
  kKey,        // class, level, targets, and the most that may be claimed
  kObjective,  // class, level and targets alone (objectives.h)
};
[[nodiscard]] Result<NamedGrant> parse_named_grant(std::string_view line, GrantOf what);

}  // namespace tandem::api
