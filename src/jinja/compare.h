// ==, <, `in` and hash() of template values, as Python has them. All charge `work`, because values
// may share their parts and a small value can be exponentially large to walk.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace tandem::jinja {

bool equals(const Value& left, const Value& right, Work& work);
// left < right; fails for types without an order. `operation` is what the template wrote, for the
// message: "<=" and ">" are computed with the operands swapped, and named in the template's order.
bool less(const Value& left, const Value& right, std::string_view operation, Work& work);
// item in container; fails when `container` cannot contain anything.
bool contains(const Value& container, const Value& item, Work& work);
// Equal values have equal hashes. Fails on lists, dicts and other unhashable types.
size_t hash_of(const Value& value, Work& work);
size_t hash_of_text(std::string_view text);

// Stable; `is_less` may throw, and may be inconsistent (NaN) without harm, which std::stable_sort
// does not promise.
template <class T, class IsLess>
void merge_sort(std::vector<T>& values, IsLess is_less) {
  std::vector<T> merged(values.size());
  for (size_t width = 1; width < values.size(); width *= 2) {
    for (size_t begin = 0; begin < values.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, values.size());
      const size_t end = std::min(begin + 2 * width, values.size());
      size_t left = begin;
      size_t right = middle;
      for (size_t out = begin; out < end; ++out) {
        const bool take_right =
            left == middle || (right < end && is_less(values[right], values[left]));
        merged[out] = take_right ? values[right++] : values[left++];
      }
    }
    values.swap(merged);
  }
}

}  // namespace tandem::jinja
