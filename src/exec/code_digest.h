// Names the sources of this program that the time of a step depends on. Written at build time by
// cmake/code_digest.cmake.
#pragma once

namespace tandem {

// Sixteen hexadecimal digits: of the kernels, the devices and the executor.
extern const char* const kCodeDigest;

}  // namespace tandem
