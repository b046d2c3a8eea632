// Names the code of this program that the time of a step depends on. Written at build time by
// cmake/code_digest.cmake.
#pragma once

namespace tandem {

// Sixteen hexadecimal digits, which depend on the sources of kernels, devices, host attention and
// executor, on the compiler and on its flags.
extern const char* const kCodeDigest;

}  // namespace tandem
