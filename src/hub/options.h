// What the hub and its cache can be told: options of the command line, and the variables of the
// environment that Hugging Face's own tools read. Threads: plain data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "options/option_descriptor.h"

namespace tandem::hub {

struct HubOptions {
  std::filesystem::path cache;  // holds models--ORG--NAME; empty: from the environment
  bool offline = false;         // ask no hub; what is in the cache must do

  // From the environment alone.
  std::string endpoint = "https://huggingface.co";  // without a slash at its end
  std::string token;                                // empty: none
  std::string ca_file;                              // a PEM file; empty: the system's
  Nanos silence = std::chrono::seconds(30);         // almost without a byte: try again

  // If the hub's newest version cannot be brought, a whole one of the cache will do: for servers.
  bool cached_will_do = false;

  int32_t connections = 4;                             // files at a time
  int32_t attempts = 6;                                // in a row without a byte; then it fails
  Nanos first_pause = std::chrono::milliseconds(500);  // between attempts; doubles
  Nanos max_pause = std::chrono::seconds(30);
  Nanos max_retry_after = std::chrono::minutes(2);  // a hub that asks for more fails at once
};

// `options` must outlive the table.
OptionTable hub_option_table(HubOptions& options);

// Fills in what options left open. `variable` gives the value of a variable, empty where it is not
// set: HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HOME, HF_TOKEN, HF_TOKEN_PATH, HF_ENDPOINT,
// HF_HUB_OFFLINE, HF_HUB_DOWNLOAD_TIMEOUT, SSL_CERT_FILE. Reads the token's file. An error names
// the variable at fault, never a token.
Status read_environment(HubOptions& options,
                        const std::function<std::string(const char*)>& variable);

// Fills in `cache` alone.
Status read_cache_folder(HubOptions& options,
                         const std::function<std::string(const char*)>& variable);

}  // namespace tandem::hub
