// Finding NaN and infinite weights at the speed of memory. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/element_type.h"

namespace tandem::model {

// Index of the first of `elements` values at `data` (any alignment) that is NaN, infinite, or would
// round to infinity when stored as `target`.
std::optional<int64_t> find_not_finite(const std::byte* data, int64_t elements, ElementType type,
                                       ElementType target);

}  // namespace tandem::model
