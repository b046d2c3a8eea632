// The options of the HTTP server. Threads: see options/option_descriptor.h.
#pragma once

#include "api/server_options.h"
#include "options/option_descriptor.h"

namespace tandem::api {

// `options` must outlive the table. Keys and certificates are named, not read.
OptionTable server_option_table(ServerOptions& options);

}  // namespace tandem::api
