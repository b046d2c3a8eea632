// How a device chooses by measuring between ways to compute the same. It measures the ops of real
// steps once, when a model's profile is made; the profile keeps the choices, so that all later
// starts compute alike.
//
// Threads: the issuing thread, while nothing runs on the device.
#pragma once

#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/tuned_choice.h"

namespace tandem::device {

class Tuning {
 public:
  virtual ~Tuning() = default;
  // Ops that are launched from now on are noted.
  virtual void begin() = 0;
  // Measures the ways to compute the noted ops, for about `limit`, and takes the quickest from now
  // on. Overwrites what these ops write; their memory must not have been released. Errors: the
  // device has failed.
  virtual Result<std::vector<TunedChoice>> end(Nanos limit) = 0;
  // Takes earlier choices, before such work is launched. A choice for work that never comes has no
  // effect.
  virtual void use(std::span<const TunedChoice> choices) = 0;
};

}  // namespace tandem::device
