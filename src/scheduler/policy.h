// What a policy is to the rest of the system: a descriptor with its name, what it needs and reads,
// its options, and how it is made. Descriptors are constants, one beside each policy in policies/;
// policies/registry.h has the table of all. Nothing outside the policies compares names.
//
// Threads: descriptors and options are plain data. What `make` gives has one owner.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "latency/corrected_model.h"
#include "latency/host_times.h"
#include "plan/admission.h"
#include "plan/decisions.h"
#include "request/service.h"

namespace tandem {

// What policies may believe about time. Both outlive the policy; their const functions may be
// called at any time, and what they answer moves as the engine observes. Null: not known, because
// nothing was profiled.
struct Beliefs {
  const latency::CorrectedModel* step_times = nullptr;
  const latency::HostTimes* host_times = nullptr;  // two tiers only
};

// A whole number that a policy reads. Policies that read the same number share the option.
struct PolicyOption {
  std::string_view name;  // of the flag, without dashes
  std::string_view unit;  // "tokens", "steps", "percent"
  int32_t default_value = 0;
  int32_t min = 0;  // both inclusive
  int32_t max = 0;
  std::string_view help;
  // What a record means that lacks the option, because its server was built before there was one.
  // Absent: the default.
  std::optional<int32_t> in_earlier_records{};
};

// Values of options. One that was not set has its default.
class PolicyOptions {
 public:
  [[nodiscard]] int32_t operator[](const PolicyOption& option) const {
    const auto found = values_.find(option.name);
    return found == values_.end() ? option.default_value : found->second;
  }
  // The reference stays valid as long as this object is not destroyed or assigned to.
  int32_t& operator[](const PolicyOption& option) {
    return values_.try_emplace(option.name, option.default_value).first->second;
  }

 private:
  std::map<std::string_view, int32_t> values_;  // by option.name, which is a constant
};

// On which tiers sequences decode under a policy.
enum class PolicyTiers : uint8_t {
  kAccelerator,  // it offloads no sequence
  kBoth,         // if there is a host tier
};

struct PolicyTraits {
  bool needs_step_times = false;  // it cannot plan without Beliefs::step_times
  bool needs_host_times = false;  // on two tiers: nor without Beliefs::host_times
  bool admits = false;            // an Admission belongs to it
  bool stages_prompts = false;    // on two tiers it sends prompts straight to the host, if it may
  PolicyTiers tiers = PolicyTiers::kAccelerator;
  bool cohorts = false;     // offloaded tokens at the same stage join a step together (APEX 3.3)
  bool plain_join = false;  // plans as piggyback; only how offloaded tokens join is its own
  ServiceFields reads;      // of a request
  // A step budget in tokens, of which 0 asks that it be measured at start so that decodes stay
  // smooth; make() needs the measured number. Null: it has none.
  const PolicyOption* measured_budget = nullptr;
  // The option of which `tandem tune` finds the largest value that latency-sensitive requests bear.
  // Null: it has none.
  const PolicyOption* tuned = nullptr;
};

// A policy that was made.
struct PolicyParts {
  std::unique_ptr<StepPolicy> step;
  // A binder for one executor; `step` must outlive it.
  std::function<std::unique_ptr<Binder>()> make_binder;
  std::unique_ptr<Admission> admission;  // null unless the policy admits
};

struct PolicyDescriptor {
  std::string_view name;
  std::string_view summary;  // for the help
  PolicyTraits traits;
  std::span<const PolicyOption* const> options;
  // Needs options within their ranges, and step times if the policy needs them (registry.h checks
  // both). Errors: values that do not fit each other.
  Result<PolicyParts> (*make)(const PolicyOptions& options, const Beliefs& beliefs) = nullptr;
};

}  // namespace tandem
