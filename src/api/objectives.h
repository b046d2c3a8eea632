// Named objectives: what a gateway asks for with the header x-llm-d-inference-objective, which
// holds a name. The operator says what each name stands for, in the words of the key file:
//
//   --objective "chat class=latency_sensitive level=-1 ttft=500ms+2ms/tok,max=8s tpot=50ms"
//
// An objective stands above what the API key gives, below what the request says itself, and within
// what the key may. Threads: any; pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/http_message.h"
#include "base/result.h"
#include "request/service.h"

namespace tandem::api {

struct Objective {
  std::string name;
  ServiceGrant gives;     // class, level and targets alone
  std::string text = {};  // as it was given
};

// Errors name the setting.
[[nodiscard]] Result<std::vector<Objective>> parse_objectives(std::span<const std::string> flags);

// What the key gives, with the objective that the request names over it. A name that is not known
// changes nothing, as with a gateway's own objectives: the answer tells the class. The only error
// is a header that is there twice with other names.
[[nodiscard]] Result<ServiceGrant> grant_for(const HttpRequest& request, ServiceGrant of_key,
                                             std::span<const Objective> objectives);

}  // namespace tandem::api
