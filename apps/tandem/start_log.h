// What `tandem serve` says of itself when it starts: the model, the configuration, the memory plan,
// what to be warned of, and how to try it.
#pragma once

#include <cstdint>

#include "node/instance.h"
#include "serve_flags.h"

namespace tandem {

void log_start(ServeFlags& flags, const PlannedModel& model);

void log_ready(const ServeFlags& flags, Instance& instance, uint16_t port);

}  // namespace tandem
