// tokenizer.json, and what it becomes.
#include "fuzz/fuzz.h"
#include "fuzz/tokenizer_fuzz.h"
#include "text/tokenizer_json.h"

namespace tandem::text {
TANDEM_FUZZ_TARGET(input) {
  static const fuzz::MemoryFile file;
  file.write(input);
  const auto tokenizer = load_tokenizer_json(file.path(), {});
  if (tokenizer.ok()) {
    fuzz::check_tokenizer(**tokenizer);
  } else {
    CHECK(!tokenizer.error().message.empty());
  }
}
}  // namespace tandem::text
