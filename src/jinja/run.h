// Helpers that the statement and expression halves of the interpreter share: guards that undo a
// change at the end of a scope, also when a Failure passes through. Used by the interpreter alone.
#pragma once

#include <fmt/format.h>

#include <utility>

namespace tandem::jinja {

// Puts the old value of a variable back.
template <class T>
class Restore {
 public:
  Restore(T& variable, T value)
      : variable_(variable), old_(std::exchange(variable, std::move(value))) {}
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;
  ~Restore() { variable_ = std::move(old_); }

 private:
  T& variable_;
  T old_;
};

}  // namespace tandem::jinja
