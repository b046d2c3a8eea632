// Server-sent events, however their bytes are cut: the data of each event, in order. Comments and
// fields other than data are passed over. Hostile input: an event is limited. Threads: one owner.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::loadgen {

class SseParser {
 public:
  explicit SseParser(size_t most_event_bytes = size_t{16} << 20)
      : most_event_bytes_(most_event_bytes) {}

  // Calls `on_data` for every event that `bytes` completes. After an error it must not be fed
  // again.
  Status feed(std::string_view bytes, const std::function<void(std::string_view)>& on_data);

 private:
  Status end_line(std::string_view line, const std::function<void(std::string_view)>& on_data);

  size_t most_event_bytes_;
  std::string line_;  // an unfinished line
  std::string data_;  // of the unfinished event
  bool has_data_ = false;
  bool after_return_ = false;  // the last byte was '\r': a '\n' now belongs to it
};

}  // namespace tandem::loadgen
