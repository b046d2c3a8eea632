#include "hub/libcurl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

#include "base/check.h"
#include "hub/http.h"

namespace tandem::hub {
namespace {

constexpr unsigned kMinVersion = 0x075500;  // 7.85, the first with CURLOPT_PROTOCOLS_STR

// The names of libcurl's builds with OpenSSL and with GnuTLS.
constexpr const char* kFiles[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

struct Loaded {
  Libcurl functions;
  std::string reason;  // empty: the functions are there
};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

// Fills `functions`. Returns the reason for which `library` cannot be used; empty: none.
std::string find_functions(void* library, const char* file, Libcurl& functions) {
#define TANDEM_FIND(name)                                    \
  if (!find(library, "curl_" #name, functions.name)) {       \
    return fmt::format("{} has no {}", file, "curl_" #name); \
  }
  TANDEM_LIBCURL_FUNCTIONS(TANDEM_FIND);
#undef TANDEM_FIND
  const curl_version_info_data* version = functions.version_info(CURLVERSION_NOW);
  if (version->version_num < kMinVersion) {
    return fmt::format("{} is version {}", file, version->version);
  }
  // In old versions this call is not safe beside other threads, so it is made once, here.
  if (functions.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    return fmt::format("{} does not start", file);
  }
  return {};
}

Loaded load() {
  Loaded loaded;
  for (const char* file : kFiles) {
    void* library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
    const std::string reason = library == nullptr ? std::string(::dlerror())
                                                  : find_functions(library, file, loaded.functions);
    if (reason.empty()) {
      return {loaded.functions, {}};
    }
    loaded.reason += (loaded.reason.empty() ? "" : "; ") + reason;
  }
  return loaded;
}

const Loaded& load_once() {
  static const Loaded loaded = load();
  return loaded;
}

}  // namespace

const Libcurl& libcurl() {
  const Loaded& loaded = load_once();
  CHECK(loaded.reason.empty(), "{}", loaded.reason);
  return loaded.functions;
}

Status require_libcurl() {
  const Loaded& loaded = load_once();
  if (!loaded.reason.empty()) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("HTTP requests need libcurl 7.85 or newer, which cannot be "
                             "loaded ({}); install it (Debian and Ubuntu: libcurl4)",
                             loaded.reason),
                 {}};
  }
  return {};
}

}  // namespace tandem::hub
