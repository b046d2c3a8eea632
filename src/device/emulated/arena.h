// One bounded tier of memory: a reservation of addresses out of which pieces are carved. A piece is
// 2 MiB-aligned and zero-filled when it is handed out; given back, every byte of it that was ever
// touched becomes 0xff, which is NaN in fp32 and bf16, so a use after the end shows in results. The
// bytes asked for count against the bound, nothing else does.
//
// Threads: allocate and the end of a piece from any; contains from any without a lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.h"
#include "device/cpu/pages.h"
#include "device/device.h"

namespace tandem::device {

struct ArenaName {
  std::string tier;  // "device"
  std::string flag;  // "--device-memory"
};
// When a piece's pages get their memory: at their first use, or when the piece is handed out, as
// a driver does that pins them (nobody is then charged for zeroing pages while it works).
enum class PagesCome : uint8_t { kAtUse, kAtOnce };

// Pieces keep their arena alive.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  // kResourceExhausted when the machine has no such range of addresses.
  static Result<std::shared_ptr<Arena>> create(const ArenaName& name, int64_t capacity_bytes,
                                               PagesCome pages_come = PagesCome::kAtUse);

  // kResourceExhausted, naming what is asked and what is left.
  Result<std::unique_ptr<Memory>> allocate(int64_t bytes);

  // Does all of [data, data + bytes) lie in the reservation?
  [[nodiscard]] bool contains(const void* data, int64_t bytes) const {
    const auto* begin = static_cast<const std::byte*>(data);
    return begin >= pages_.data() && bytes >= 0 && bytes <= pages_.bytes() &&
           begin - pages_.data() <= pages_.bytes() - bytes;
  }
  [[nodiscard]] int64_t capacity_bytes() const { return capacity_bytes_; }

 private:
  class Piece;
  Arena(const ArenaName& name, int64_t capacity_bytes, Pages pages, PagesCome pages_come);
  void give_back(int64_t offset, int64_t bytes);
  [[nodiscard]] Error full(int64_t bytes, int64_t left) const;

  const ArenaName name_;
  const int64_t capacity_bytes_;
  const Pages pages_;
  const PagesCome pages_come_;
  std::mutex mutex_;  // guards what follows
  int64_t used_bytes_ = 0;
  std::map<int64_t, int64_t> free_;  // begin -> length of the free ranges of addresses, apart
};

}  // namespace tandem::device
