// What one rendering may cost, and how a failure inside the engine travels. The engine throws
// Failure internally; only template.cc catches it and turns it into a Result, so nothing
// leaves the folder as an exception.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace tandem::jinja {

struct Limits {
  int64_t max_steps = 20'000'000;  // nodes evaluated and items or 16-byte pieces looked at
  size_t max_allocated_bytes = size_t{512}
                               << 20;  // of all texts and lists a rendering ever makes, added up
  size_t max_output_bytes = size_t{64} << 20;  // of the rendered text
  int max_depth = 900;                         // nested evaluations: blocks, operators, macro calls
  int64_t max_range_items = 100'000;           // of one range(), as in jinja2's sandbox
};

// Nesting of lists and dicts; also the bound on recursion over values.
inline constexpr int kMaxValueDepth = 200;

enum class FailureKind {
  kTemplate,  // the template called raise_exception: its message is for the caller as it is
  kRender,    // a wrong type, an undefined value, a limit
};

struct Failure {
  FailureKind kind = FailureKind::kRender;
  std::string message;
};

[[noreturn]] inline void fail(std::string message) {
  throw Failure{FailureKind::kRender, std::move(message)};
}

// Counts the cost of one rendering and fails when it passes a limit. One thread.
class Work {
 public:
  explicit Work(const Limits& limits) : limits_(limits) {}

  void spend(int64_t steps) {
    steps_ += steps;
    if (steps_ > limits_.max_steps) fail("the template takes more steps than a rendering may");
  }
  void spend_on_bytes(size_t bytes) { spend(static_cast<int64_t>(bytes / 16) + 1); }

  // Call before making something that takes `bytes`.
  void allocate(size_t bytes) {
    if (bytes > limits_.max_allocated_bytes - allocated_bytes_) {
      fail("the template needs more memory than a rendering may");
    }
    allocated_bytes_ += bytes;
  }
  void allocate(size_t count, size_t bytes_each) {
    if (bytes_each != 0 && count > limits_.max_allocated_bytes / bytes_each) {
      fail("the template needs more memory than a rendering may");
    }
    allocate(count * bytes_each);
  }

  [[nodiscard]] const Limits& limits() const { return limits_; }

 private:
  const Limits limits_;
  int64_t steps_ = 0;
  size_t allocated_bytes_ = 0;
};

}  // namespace tandem::jinja
