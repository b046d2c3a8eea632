// The worst requests that the server accepts, for `tandem bench frontend --hostile`, and the
// tokenizer they are made for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace tandem::bench {

struct HostileRequest {
  std::string name;
  std::string path = "/v1/completions";
  std::string body;
  bool answer_is_read = true;
  bool with_key = true;
};

std::vector<HostileRequest> hostile_requests();

// A byte-level BPE with a special token of twelve bytes, read from a tokenizer.json as a model's
// is.
Result<std::unique_ptr<text::Tokenizer>> hostile_tokenizer();

}  // namespace tandem::bench
