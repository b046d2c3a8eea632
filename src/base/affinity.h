// Where a thread runs. Any thread.
#pragma once

#include <cstdint>
#include <span>

namespace tandem {

// Pins the calling thread; false when the kernel refuses, which is not an error: it then floats.
bool pin_this_thread(int32_t cpu);
// The same for any of several CPUs; `cpus` is not empty.
bool pin_this_thread(std::span<const int32_t> cpus);

}  // namespace tandem
