// Bodies of /v1/chat/completions.
#include "fuzz/request_fuzz.h"

namespace tandem::fuzz {
TANDEM_FUZZ_TARGET_IN_TIME(input) { parse_body(openai::Endpoint::kChat, input); }
}  // namespace tandem::fuzz
