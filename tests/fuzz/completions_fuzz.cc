// Bodies of /v1/completions.
#include "fuzz/request_fuzz.h"

namespace tandem::fuzz {
TANDEM_FUZZ_TARGET_IN_TIME(input) { parse_body(openai::Endpoint::kCompletions, input); }
}  // namespace tandem::fuzz
