// Ends a generated text at the first stop string, on the way out: what may still become one is held
// back. The first stop string to be complete wins; of several that end at the same place, the
// longest. So the result does not depend on how the text was cut into pushes. Compiling takes time
// in proportion to the bytes of the stop strings; time per byte of text does not depend on how many
// there are. Threads: StopStrings is const and shared; a StopStringCutter has one owner. Units:
// bytes of UTF-8.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/int_map.h"

namespace tandem::text {

// The stop strings of one request, compiled (the automaton of Aho and Corasick).
class StopStrings {
 public:
  // Needs strings that are not empty and valid UTF-8; the Error's param is "stop".
  static Result<std::shared_ptr<const StopStrings>> compile(std::vector<std::string> strings);

  [[nodiscard]] const std::vector<std::string>& strings() const { return strings_; }

 private:
  friend class StopStringCutter;
  static constexpr int32_t kNone = -1;
  struct Node {
    int32_t parent = 0;
    uint8_t byte = 0;         // leads here from the parent
    int32_t fail = 0;         // the longest proper suffix that begins a stop string
    int32_t depth = 0;        // bytes from the root
    int32_t longest = kNone;  // the longest stop string that ends here
  };

  [[nodiscard]] int32_t child(int32_t node, uint8_t byte) const;
  [[nodiscard]] int32_t step(int32_t node, uint8_t byte) const;
  void link();

  std::vector<std::string> strings_;
  std::vector<Node> nodes_;  // 0 is the root
  IntMap children_;          // (node, byte) -> node
};

struct StopOptions {
  bool include_stop_string_in_output = false;
};

struct StopCut {
  std::string text;            // to send now
  std::optional<size_t> stop;  // which stop string ended the text; nothing may be pushed after it
};

class StopStringCutter {
 public:
  // `strings` may be null: nothing stops the text.
  StopStringCutter(std::shared_ptr<const StopStrings> strings, StopOptions options)
      : strings_(std::move(strings)), options_(options) {}

  [[nodiscard]] StopCut push(std::string_view text);
  // Like push(), but a stop string that ends in `text` does not stop it. One that begins in it may
  // still end in a later text.
  [[nodiscard]] std::string pass(std::string_view text);

  // What was held back, at the end of a text that no stop string ended.
  [[nodiscard]] std::string flush();

 private:
  [[nodiscard]] std::string take_sendable();

  std::shared_ptr<const StopStrings> strings_;
  StopOptions options_;
  int32_t node_ = 0;
  std::string held_;  // the longest suffix so far that may be the beginning of a stop string
};

}  // namespace tandem::text
