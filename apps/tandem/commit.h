// The commit of the sources this binary was built from, "-changed" behind it when they differed
// from it; empty where it is not known. Written at build time by cmake/commit.cmake.
#pragma once

namespace tandem {

extern const char* const kCommit;

}  // namespace tandem
