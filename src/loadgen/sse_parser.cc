#include "loadgen/sse_parser.h"

#include <fmt/format.h>

namespace tandem::loadgen {

Status SseParser::feed(std::string_view bytes,
                       const std::function<void(std::string_view)>& on_data) {
  while (!bytes.empty()) {
    if (after_return_) {
      after_return_ = false;
      if (bytes.front() == '\n') {
        bytes.remove_prefix(1);
        continue;
      }
    }
    const size_t end = bytes.find_first_of("\r\n");
    const std::string_view part = bytes.substr(0, end);
    if (line_.size() + data_.size() + part.size() > most_event_bytes_) {
      return invalid_argument(fmt::format("an event has more than {} bytes", most_event_bytes_));
    }
    if (end == bytes.npos) {
      line_ += part;
      return {};
    }
    after_return_ = bytes[end] == '\r';
    if (line_.empty()) {
      RETURN_IF_ERROR(end_line(part, on_data));
    } else {
      line_ += part;
      RETURN_IF_ERROR(end_line(line_, on_data));
      line_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
  return {};
}

Status SseParser::end_line(std::string_view line,
                           const std::function<void(std::string_view)>& on_data) {
  if (line.empty()) {
    if (has_data_) {
      on_data(data_);
    }
    data_.clear();
    has_data_ = false;
    return {};
  }
  if (!line.starts_with("data") || (line.size() > 4 && line[4] != ':')) {
    return {};
  }
  line.remove_prefix(std::min<size_t>(line.size(), 5));
  if (line.starts_with(' ')) {
    line.remove_prefix(1);
  }
  if (has_data_) {
    data_ += '\n';
  }
  data_ += line;
  has_data_ = true;
  return {};
}

}  // namespace tandem::loadgen
