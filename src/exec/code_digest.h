// Names the code of this program that the time of a step depends on. Written at build time by
// cmake/code_digest.cmake.
#pragma once

namespace tandem {

// Sixteen hexadecimal digits: of the sources of kernels, devices, host attention and executor, and
// of compiler and flags.
extern const char* const kCodeDigest;

}  // namespace tandem
