#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tandem {

void check_failed(const char* file, int line, const char* condition, const std::string& details) {
  std::fprintf(stderr, "tandem: bug at %s:%d: %s does not hold%s%s\n", file, line, condition,
               details.empty() ? "" : ": ", details.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace tandem
