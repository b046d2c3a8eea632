// Settles what `tandem serve --device auto` can settle before a device is opened.
#pragma once

#include "base/result.h"
#include "serve_flags.h"

namespace tandem {

// Like resolve(). With --device auto, `flags` become options for the first GPU unless an option or
// the driver rules it out. open_model() then finds out whether the GPU serves the model, and falls
// back to the CPUs if not. If this function chooses the CPUs, it logs the reason. Without a back
// end for GPUs it does so only for `flags.check`.
Status resolve_to_serve(ServeFlags& flags);

}  // namespace tandem
