// Counts of a HopCore that the executor does not need. The core must outlive the view.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "piggyback/core/hop_core.h"

namespace tandem::piggyback {

class HopCoreView {
 public:
  explicit HopCoreView(const HopCore& core) : core_(core) {}

  // Tokens between entry and the bind of their last visit, unless their sequence has left.
  [[nodiscard]] int32_t tokens() const { return core_.tokens_; }
  [[nodiscard]] int32_t free_slots() const {
    return static_cast<int32_t>(core_.free_slots_.size());
  }
  [[nodiscard]] int32_t free_hop_rows() const { return core_.allocator_.free_rows(); }
  [[nodiscard]] int32_t free_ring_rows() const { return core_.ring_.free_rows(); }
  // Hop rows that only wait for an outstanding answer.
  [[nodiscard]] int32_t quarantined() const { return core_.rows_in(HopCore::RowState::kSpent); }
  // Hop rows of lost attempts.
  [[nodiscard]] int32_t lost() const { return core_.rows_in(HopCore::RowState::kLost); }
  // Tokens ready at stages >= stage.
  [[nodiscard]] int32_t ready_from(int32_t stage) const {
    int32_t count = 0;
    for (; stage <= core_.limits_.last_stage; ++stage) {
      count += core_.ready(stage);
    }
    return count;
  }
  // Since when the oldest token of the stage is ready; nullopt: none is.
  [[nodiscard]] std::optional<Nanos> oldest_ready(int32_t stage) const {
    std::optional<Nanos> oldest;
    for (int32_t lane = 0; lane < kLanes; ++lane) {
      for (int32_t slot = core_.queue(stage, lane).first; slot >= 0;
           slot = core_.slot_at(slot).next) {
        const Nanos since = core_.slot_at(slot).ready_since;
        oldest = std::min(oldest.value_or(since), since);
      }
    }
    return oldest;
  }

 private:
  const HopCore& core_;
};

}  // namespace tandem::piggyback
