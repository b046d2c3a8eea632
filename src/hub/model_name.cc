#include "hub/model_name.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::hub {
namespace {

constexpr size_t kMaxNameBytes = 96;       // as the hub has it
constexpr size_t kMaxRevisionBytes = 200;  // becomes the name of a file
constexpr size_t kMaxPartBytes = 255;
constexpr size_t kMaxPathBytes = 1024;

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_name_part(std::string_view part) {
  const auto may_end = [](char c) { return c != '-' && c != '.'; };
  return !part.empty() && may_end(part.front()) && may_end(part.back()) &&
         part.find("--") == part.npos && part.find("..") == part.npos && !part.ends_with(".git") &&
         std::ranges::all_of(
             part, [](char c) { return is_alphanumeric(c) || c == '-' || c == '_' || c == '.'; });
}

bool is_revision(std::string_view revision) {
  return revision.size() <= kMaxRevisionBytes && is_safe_path(revision) &&
         revision.front() != '-' && !revision.ends_with(".lock") &&
         revision.find(' ') == revision.npos;
}

// Calls `check` for every part between slashes; false as soon as it is.
template <class Check>
bool all_parts(std::string_view path, const Check& check) {
  if (path.empty() || path.size() > kMaxPathBytes) {
    return false;
  }
  while (true) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part.size() > kMaxPartBytes || part == "." || part == ".." ||
        !check(part)) {
      return false;
    }
    if (slash == path.npos) {
      return true;
    }
    path.remove_prefix(slash + 1);
  }
}

}  // namespace

std::string ModelName::text() const {
  std::string name = repository;
  if (revision != "main") {
    name += "@" + revision;
  }
  if (!file.empty()) {
    name += ":" + file;
  }
  return name;
}

bool is_safe_path(std::string_view path) {
  constexpr std::string_view kOthers = "-_.+=, ";
  return all_parts(path, [&](std::string_view part) {
    return std::ranges::all_of(
        part, [&](char c) { return is_alphanumeric(c) || kOthers.find(c) != kOthers.npos; });
  });
}

bool stays_inside(std::string_view path) {
  return all_parts(path, [](std::string_view part) {
    return std::ranges::all_of(part, [](char c) {
      const auto byte = static_cast<unsigned char>(c);
      return byte >= 0x20 && byte != 0x7F && c != '\\';
    });
  });
}

bool is_commit(std::string_view text) {
  constexpr size_t kDigits = 40;
  return text.size() == kDigits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool looks_like_model_name(std::string_view text) {
  const std::string_view repository = text.substr(0, text.find_first_of("@:"));
  return !text.empty() && text.front() != '.' && text.front() != '~' && text.front() != '/' &&
         std::ranges::count(repository, '/') == 1 && !repository.ends_with('/');
}

Result<ModelName> parse_model_name(std::string_view text) {
  const auto wrong = [text](std::string_view why) {
    // What is shown of a name that a shell or a file brought is printable.
    std::string shown(text.substr(0, kMaxNameBytes));
    std::ranges::replace_if(
        shown, [](char c) { return c < ' ' || c > '~'; }, '?');
    return invalid_argument(fmt::format("'{}' is not a model's name: {}; write ORG/NAME, "
                                        "ORG/NAME@REVISION or ORG/NAME:FILE.gguf",
                                        shown, why),
                            "model");
  };
  ModelName name;
  std::string_view rest = text;
  // Neither a revision may contain ':' nor a file '@', so the first of each is a separator.
  if (const size_t colon = rest.find(':'); colon != rest.npos) {
    name.file = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
    if (!is_safe_path(name.file) || !name.file.ends_with(".gguf")) {
      return wrong("what follows ':' must be the path of a *.gguf file");
    }
  }
  if (const size_t at = rest.find('@'); at != rest.npos) {
    name.revision = rest.substr(at + 1);
    rest = rest.substr(0, at);
    if (!is_revision(name.revision)) {
      return wrong("what follows '@' must be a branch, a tag or a commit");
    }
  }
  const size_t slash = rest.find('/');
  if (slash == rest.npos || rest.find('/', slash + 1) != rest.npos) {
    return wrong("it needs one '/', between the organisation and the model");
  }
  if (rest.size() > kMaxNameBytes || !is_name_part(rest.substr(0, slash)) ||
      !is_name_part(rest.substr(slash + 1))) {
    return wrong(
        "organisation and model have letters, digits, '-', '_' and '.', together at most 96; no "
        "'--' or '..', and no '-' or '.' at either end");
  }
  name.repository = rest;
  return name;
}

}  // namespace tandem::hub
