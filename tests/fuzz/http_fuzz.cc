// Request bytes: however they are cut, the same requests must come out of them, and no request may
// be larger than its limits.
#include <algorithm>
#include <string>
#include <vector>

#include "api/access_log.h"
#include "api/http_parser.h"
#include "api/routes.h"
#include "api/service_headers.h"
#include "fuzz/fuzz.h"

namespace tandem::api {
namespace {

constexpr HttpLimits kLimits{.max_header_bytes = 8192, .max_body_bytes = 32768};

struct Outcome {
  std::vector<HttpRequest> requests;
  int error_status = 0;
};

// Feeds pieces of `piece_bytes`; a failed parser is given nothing more.
Outcome parse(std::string_view input, size_t piece_bytes) {
  Outcome outcome;
  HttpParser parser(kLimits);
  HttpRequest head;
  while (!input.empty() && outcome.error_status == 0) {
    HttpParser::State state = parser.feed(input.substr(0, piece_bytes));
    input.remove_prefix(std::min(piece_bytes, input.size()));
    while (state == HttpParser::State::kHeaders || state == HttpParser::State::kComplete) {
      if (state == HttpParser::State::kHeaders) {
        head = parser.head();
      } else {
        head.body = parser.take_body();
        outcome.requests.push_back(head);
      }
      state = parser.feed({});
    }
    if (state == HttpParser::State::kFailed) {
      outcome.error_status = parser.error_status();
      CHECK(outcome.error_status >= 400 && !parser.error_reason().empty());
    }
  }
  return outcome;
}

TANDEM_FUZZ_TARGET_IN_TIME(input) {
  const Outcome whole = parse(input, std::max<size_t>(input.size(), 1));
  const Outcome cut = parse(input, 1 + input.size() % 7);
  // A request that is wrong and not complete may be refused now or with its last byte. Headers
  // within a line of their limit may be refused or not: the library counts them as they come.
  constexpr int kHeadersTooLarge = 431;
  const bool comparable =
      whole.error_status != kHeadersTooLarge && cut.error_status != kHeadersTooLarge;
  CHECK(!comparable || whole.requests.size() == cut.requests.size(), "{} and {} requests",
        whole.requests.size(), cut.requests.size());
  for (size_t i = 0; i < std::min(whole.requests.size(), cut.requests.size()); ++i) {
    const HttpRequest& request = whole.requests[i];
    CHECK(request.method == cut.requests[i].method && request.path == cut.requests[i].path);
    CHECK(request.headers == cut.requests[i].headers && request.body == cut.requests[i].body);
    CHECK(request.keep_alive == cut.requests[i].keep_alive);
    CHECK(request.body.size() <= kLimits.max_body_bytes);
    const RequestNames names = names_of(request, "generated");
    const std::string line = access_line(
        access_fields({.method = request.method, .path = request.path, .client = "-"}, names));
    CHECK(std::ranges::all_of(line, [](char c) { return c >= ' ' && c < 0x7F; }), "{}", line);
    const Result<ServiceClaim> claim = claim_of_headers(request);
    CHECK(claim.ok() ? !claim->tpot || *claim->tpot > Nanos{0} : !claim.error().param.empty());
    fuzz::use(find_route(request.path) != nullptr ? 1 : 0);
  }
}

}  // namespace
}  // namespace tandem::api
