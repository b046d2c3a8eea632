// The worst requests that the server accepts, for `tandem bench frontend --hostile`, and the
// tokenizer they are made for.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace tandem::bench {

inline constexpr std::string_view kHostileKey = "bench";

struct HostileRequest {
  std::string name;
  std::string path = "/v1/completions";
  std::string body;  // as it is sent
  bool answer_is_read = true;
  bool with_key = true;
  bool chunked = false;  // the body is a list of chunks
  size_t cut_bytes = 0;  // at the end of the body: not sent, the client leaves instead
};

std::vector<HostileRequest> hostile_requests();
std::string head_of(const HostileRequest& request);

// A byte-level BPE with a special token of twelve bytes, read from a tokenizer.json as a model's
// is.
Result<std::unique_ptr<text::Tokenizer>> hostile_tokenizer();

}  // namespace tandem::bench
