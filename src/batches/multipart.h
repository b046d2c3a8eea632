// Reads a multipart/form-data body (RFC 7578) as its pieces come, however they are cut, and passes
// the data of its parts on at once: memory is bounded by the headers of a part. Hostile input: the
// boundary, the headers of a part and the number of parts are limited; what is malformed is an
// error, after which nothing may be fed. Threads: one owner at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::batches {

struct PartHead {
  std::string name;
  std::optional<std::string> filename;
};

// Receives the parts in their order. An error ends the reading and is what feed() returns.
class PartSink {
 public:
  virtual ~PartSink() = default;
  virtual Status begin_part(const PartHead& head) = 0;
  virtual Status part_data(std::string_view bytes) = 0;
  virtual Status end_part() = 0;
};

class MultipartReader {
 public:
  static constexpr size_t kMaxHeadBytes = 8 * 1024;  // headers of a part
  static constexpr int32_t kMaxParts = 64;

  // By the request's Content-Type.
  static Result<MultipartReader> make(std::string_view content_type);

  [[nodiscard]] Status feed(std::string_view bytes, PartSink& sink);
  // The body has ended: an error unless its last delimiter was there.
  [[nodiscard]] Status finish() const;

 private:
  explicit MultipartReader(const std::string& boundary)
      : delimiter_("\r\n--" + boundary), buffer_("\r\n") {}
  enum class Place : uint8_t { kPreamble, kDelimiter, kHead, kData, kEpilogue };
  // Each takes what it can from the front of the buffer. False: it needs more.
  Result<bool> take_delimiter();
  Result<bool> take_head(PartSink& sink);
  Result<bool> take_data(PartSink& sink);

  std::string delimiter_;
  std::string buffer_;  // of the body, not taken yet; a line end is put before the body
  size_t taken_ = 0;    // of the buffer
  Place place_ = Place::kPreamble;
  int32_t parts_ = 0;
};

}  // namespace tandem::batches
