// The name of a model on a hub: "ORG/NAME[@REVISION][:FILE.gguf]". Names come from the command line
// and, as parts of file lists, from the hub: none of them may leave the folder it is used in.
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::hub {

struct ModelName {
  std::string repository;         // "ORG/NAME"
  std::string revision = "main";  // a branch, a tag, "refs/pr/1" or a commit
  std::string file;               // of a GGUF repository, folders separated by /; empty: none

  bool operator==(const ModelName&) const = default;
  [[nodiscard]] std::string text() const;  // as it is written; without "@main"
};

// True: `text` has the form of a model's name and not of a path: one slash before any @ or :, and
// no dot or tilde at its beginning. It may still be refused by parse_model_name.
[[nodiscard]] bool looks_like_model_name(std::string_view text);

// Errors say which part of the name is wrong, and what it may be.
Result<ModelName> parse_model_name(std::string_view text);

// A path below a folder that is safe to make there: parts of letters, digits, '-', '_', '.', '+',
// '=', ',' and blanks separated by '/', none of them empty, "." or "..", at most 255 bytes each.
[[nodiscard]] bool is_safe_path(std::string_view path);

// False: `path` could reach outside of a folder, or holds control characters. Weaker than
// is_safe_path: for files of a list that are not used.
[[nodiscard]] bool stays_inside(std::string_view path);

// The full hash of a commit: 40 lower-case hexadecimal digits.
[[nodiscard]] bool is_commit(std::string_view text);

}  // namespace tandem::hub
