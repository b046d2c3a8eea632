// What `tandem serve` says of itself when it starts: the model, the configuration, the memory plan,
// what to be warned of, and how to try it.
#pragma once

#include <cstdint>
#include <string>

#include "node/node.h"
#include "serve_flags.h"

namespace tandem {

void log_start(const ServeFlags& flags, const ModelOnDevice& parts);

// `name` is what the model answers to.
void log_ready(const ServeFlags& flags, const Node& node, uint16_t port, const std::string& name);

}  // namespace tandem
