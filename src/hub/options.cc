#include "hub/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <system_error>

#include "base/printable.h"
#include "hub/http.h"
#include "options/option_values.h"

namespace tandem::hub {
namespace {

namespace fs = std::filesystem;
using Variable = std::function<std::string(const char*)>;

constexpr size_t kMaxShownPath = 200;

// "~/models" as a shell would write it out.
Result<fs::path> with_home(const std::string& path, const Variable& variable) {
  if (path != "~" && !path.starts_with("~/")) {
    return fs::path(path);
  }
  const std::string home = variable("HOME");
  if (home.empty()) {
    return invalid_argument(
        fmt::format("'{}' cannot be found: HOME is not set; write the whole path",
                    printable(path, kMaxShownPath)),
        "HOME");
  }
  return path == "~" ? fs::path(home) : fs::path(home) / path.substr(2);
}

// The folder of the cache and the token; empty: nothing says where.
Result<fs::path> hub_home(const Variable& variable) {
  if (const std::string home = variable("HF_HOME"); !home.empty()) {
    return with_home(home, variable);
  }
  if (const std::string caches = variable("XDG_CACHE_HOME"); !caches.empty()) {
    ASSIGN_OR_RETURN(const fs::path folder, with_home(caches, variable));
    return folder / "huggingface";
  }
  const std::string home = variable("HOME");
  return home.empty() ? fs::path() : fs::path(home) / ".cache" / "huggingface";
}

std::string without_blanks(const std::string& text) {
  constexpr const char* kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  return begin == text.npos ? std::string()
                            : text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// The file that holds the token; empty: nothing says where.
Result<fs::path> token_file(const Variable& variable) {
  if (const std::string named = variable("HF_TOKEN_PATH"); !named.empty()) {
    return with_home(named, variable);
  }
  ASSIGN_OR_RETURN(const fs::path home, hub_home(variable));
  return home.empty() ? home : home / "token";
}

// Empty: there is no such file.
Result<std::string> read_token_file(const fs::path& path) {
  std::error_code ignored;
  if (path.empty() || !fs::exists(path, ignored)) {
    return std::string();
  }
  constexpr size_t kMaxTokenBytes = 4096;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxTokenBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || !(file.is_open() && (file || file.eof()))) {
    return invalid_argument(
        fmt::format("the token's file '{}' cannot be read; check its permissions, or set HF_TOKEN",
                    printable(path.string(), kMaxShownPath)),
        "HF_TOKEN_PATH");
  }
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return without_blanks(text);
}

Status read_token(HubOptions& options, const Variable& variable) {
  std::string source;
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (options.token.empty()) {
      options.token = without_blanks(variable(name));
      source = name;
    }
  }
  if (options.token.empty()) {
    ASSIGN_OR_RETURN(const fs::path path, token_file(variable));
    ASSIGN_OR_RETURN(options.token, read_token_file(path));
    source = printable(path.string(), kMaxShownPath);
  }
  if (std::ranges::any_of(options.token, [](char c) { return c <= ' ' || c > '~'; })) {
    return invalid_argument(
        fmt::format("{}: it is not a token: it holds a blank, or a character that no token has",
                    source),
        "HF_TOKEN");
  }
  return {};
}

Status read_endpoint(HubOptions& options, const Variable& variable) {
  if (const std::string endpoint = variable("HF_ENDPOINT"); !endpoint.empty()) {
    options.endpoint = endpoint;
  }
  while (options.endpoint.ends_with('/')) {
    options.endpoint.pop_back();
  }
  // libcurl reads addresses; without it no request is made, so that the address does not matter.
  if (!options.offline && require_libcurl().ok() && origin_of(options.endpoint).empty()) {
    return invalid_argument(
        "HF_ENDPOINT is not an address; write it as https://huggingface.co, without a user",
        "HF_ENDPOINT");
  }
  return {};
}

bool is_true(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return text == "1" || text == "ON" || text == "YES" || text == "TRUE";
}

}  // namespace

OptionTable hub_option_table(HubOptions& options) {
  constexpr const char* kGroup = "Hub";
  return {{.name = "offline",
           .group = kGroup,
           .help = "Ask no hub for a model's name: what is in the cache must do (also "
                   "HF_HUB_OFFLINE=1)",
           .value = values::switch_on(options.offline)},
          {.name = "hub-cache",
           .group = kGroup,
           .help = "Folder of downloaded models, shared with Hugging Face's tools (default: "
                   "HF_HUB_CACHE, or hub in HF_HOME, or ~/.cache/huggingface/hub)",
           .value = values::path(options.cache)}};
}

Status read_cache_folder(HubOptions& options, const Variable& variable) {
  if (!options.cache.empty()) {
    return {};
  }
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const std::string cache = variable(name); !cache.empty()) {
      ASSIGN_OR_RETURN(options.cache, with_home(cache, variable));
      return {};
    }
  }
  ASSIGN_OR_RETURN(const fs::path home, hub_home(variable));
  if (home.empty()) {
    return invalid_argument(
        "there is no folder for models: HF_HOME and HOME are not set; give --hub-cache DIR",
        "hub-cache");
  }
  options.cache = home / "hub";
  return {};
}

Status read_environment(HubOptions& options, const Variable& variable) {
  options.offline = options.offline || is_true(variable("HF_HUB_OFFLINE"));
  RETURN_IF_ERROR(read_cache_folder(options, variable));
  RETURN_IF_ERROR(read_token(options, variable));
  RETURN_IF_ERROR(read_endpoint(options, variable));
  options.ca_file = variable("SSL_CERT_FILE");
  if (const std::string text = variable("HF_HUB_DOWNLOAD_TIMEOUT"); !text.empty()) {
    constexpr int32_t kMaxSeconds = 3600;
    int32_t seconds = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (code != std::errc() || end != text.data() + text.size() || seconds < 1 ||
        seconds > kMaxSeconds) {
      return invalid_argument(
          fmt::format("HF_HUB_DOWNLOAD_TIMEOUT must be a whole number of seconds from 1 to {}",
                      kMaxSeconds),
          "HF_HUB_DOWNLOAD_TIMEOUT");
    }
    options.silence = std::chrono::seconds(seconds);
  }
  return {};
}

}  // namespace tandem::hub
