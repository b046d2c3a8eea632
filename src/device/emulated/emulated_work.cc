#include "device/emulated/emulated_work.h"

#include <variant>

namespace tandem::device {

void EmulatedWork::run(const Op& op) {
  const Nanos begin = clock_.now();
  runner_.run(op);
  counters_.add_op(clock_.now() - begin);
  if (const auto* copy = std::get_if<CopyOp>(&op); copy != nullptr && copy->bytes > 0) {
    counters_.add_copy(direction_of(*copy, tiers_), copy->bytes);
  }
}

}  // namespace tandem::device
