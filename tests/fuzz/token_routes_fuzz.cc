// Bodies of /tokenize and /detokenize.
#include "fuzz/request_fuzz.h"
#include "openai/token_routes.h"

namespace tandem::fuzz {
TANDEM_FUZZ_TARGET_IN_TIME(input) {
  static const FuzzModel model;
  for (const auto& answer :
       {openai::tokenize(input, model.directory), openai::detokenize(input, model.directory)}) {
    if (answer.ok()) {
      CHECK(nlohmann::json::accept(*answer), "{}", *answer);
    } else {
      check_error(answer.error());
    }
  }
}
}  // namespace tandem::fuzz
