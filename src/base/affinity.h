// Where a thread runs. Any thread.
#pragma once

#include <cstdint>

namespace tandem {

// Pins the calling thread; false when the kernel refuses, which is not an error: it then floats.
bool pin_this_thread(int32_t cpu);

}  // namespace tandem
