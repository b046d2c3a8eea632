// What a stream still has to do: an unbounded queue from one issuing thread to one stream thread.
// Entries live in segments that are used again, so a warm queue allocates nothing. Entries are
// published many at a time: each publication waits until the writes before it have reached the
// caches, which a step's weights have taken over. The stream publishes only how far it has come,
// and the issuing thread looks at that only when it needs a segment: streams are not ordered by
// their queues, only by events.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "device/device.h"

namespace tandem::device {

class CpuStream;

struct RecordEntry {
  int64_t event = 0;                                // the stream's event of this number is complete
  const std::function<void()>* listener = nullptr;  // to be called then; may be null
};
struct WaitEntry {
  CpuStream* stream = nullptr;  // whose event
  int64_t event = 0;
};
struct StopEntry {};
using StreamEntry = std::variant<StopEntry, Op, RecordEntry, WaitEntry>;

class StreamQueue {
 public:
  StreamQueue();

  // Issuing thread. The stream sees the entry after the next publish().
  template <class Entry>
  void push(const Entry& entry) {
    if (place_ == segment_end_) {
      next_segment();
    }
    prefetch_ahead();
    place_->emplace<Entry>(entry);
    ++place_;
    ++pushed_;
  }
  void publish() { published_.store(pushed_, std::memory_order_seq_cst); }

  // Stream thread: the oldest published entry, or null. pop() ends its use.
  const StreamEntry* front() {
    if (popped_ == seen_) {
      seen_ = published_.load(std::memory_order_seq_cst);
      if (popped_ == seen_) {
        return nullptr;
      }
    }
    if (read_index_ == kSegmentEntries) {
      read_ = read_->next;
      read_index_ = 0;
    }
    return &read_->entries[static_cast<size_t>(read_index_)];
  }
  void pop() {
    ++read_index_;
    ++popped_;
    consumed_.store(popped_, std::memory_order_release);
  }

 private:
  static constexpr int kSegmentEntries = 256;
  static constexpr int kPrefetched = 8;  // entries ahead of the write
  struct Segment {
    std::array<StreamEntry, kSegmentEntries + kPrefetched> entries;  // the last are only prefetched
    Segment* next = nullptr;  // in a ring; changed only by the issuing thread, only while it writes
                              // this segment
    int64_t end = 0;          // entries pushed when this segment was last full
  };

  // So that the writes do not queue up behind each other's cache misses.
  void prefetch_ahead() const {
    const auto* entry = reinterpret_cast<const char*>(place_ + kPrefetched);
    for (size_t offset = 0; offset < sizeof(StreamEntry); offset += 64) {
      __builtin_prefetch(entry + offset, 1);
    }
  }

  // A segment is used again when an entry behind it has been consumed: a stream that has consumed
  // just its last entry has yet to follow its `next`.
  void next_segment();
  void write_to(Segment* segment);

  // Issuing thread's.
  std::vector<std::unique_ptr<Segment>> segments_;
  Segment* write_ = nullptr;
  StreamEntry* place_ = nullptr;        // the next entry is written here
  StreamEntry* segment_end_ = nullptr;  // end of the entries of write_
  int64_t pushed_ = 0;
  // Shared.
  alignas(64) std::atomic<int64_t> published_{0};
  alignas(64) std::atomic<int64_t> consumed_{0};
  // Stream thread's.
  alignas(64) Segment* read_ = nullptr;
  int read_index_ = 0;
  int64_t popped_ = 0;
  int64_t seen_ = 0;
};

}  // namespace tandem::device
