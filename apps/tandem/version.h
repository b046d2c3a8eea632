// The version and the commit of this binary. Written at build time by cmake/version.cmake.
#pragma once

namespace tandem {

// "0.1.0" at the tag v0.1.0, "0.1.0+38" 38 commits after it, "0.2.0-dev.38" where 0.2.0 has no tag
// yet.
extern const char* const kVersion;

// The commit of the sources, "-changed" behind it if they differed from it; empty: not known.
extern const char* const kCommit;

}  // namespace tandem
