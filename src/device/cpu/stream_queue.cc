#include "device/cpu/stream_queue.h"

namespace tandem::device {

StreamQueue::StreamQueue() {
  segments_.push_back(std::make_unique<Segment>());
  Segment* first = segments_.back().get();
  first->next = first;
  read_ = first;
  write_to(first);
}

void StreamQueue::write_to(Segment* segment) {
  write_ = segment;
  place_ = segment->entries.data();
  segment_end_ = place_ + kSegmentEntries;
}

void StreamQueue::next_segment() {
  write_->end = pushed_;
  Segment* next = write_->next;
  if (next == write_ || consumed_.load(std::memory_order_acquire) <= next->end) {
    segments_.push_back(std::make_unique<Segment>());
    Segment* fresh = segments_.back().get();
    fresh->next = next;
    write_->next = fresh;
    next = fresh;
  }
  write_to(next);
}

}  // namespace tandem::device
