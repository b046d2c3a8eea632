// The sequences that wait, in the order that the policy made. Internal to engine/; engine thread
// only.
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>
#include <span>
#include <utility>

#include "base/check.h"
#include "engine/live_sequence.h"
#include "plan/queue_order.h"

namespace tandem {

class WaitingQueue {
 public:
  // Over all sequences in order. Inserting or erasing invalidates it.
  class Iterator {
   public:
    using value_type = LiveSequence*;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    Iterator(const QueueOrder* order, std::span<QueueEntry* const> run)
        : order_(order), run_(run) {}
    LiveSequence* operator*() const { return static_cast<LiveSequence*>(run_.front()); }
    Iterator& operator++() {
      QueueEntry* const last = run_.front();
      run_ = run_.subspan(1);
      if (run_.empty()) {
        run_ = order_->next(last);
      }
      return *this;
    }
    Iterator operator++(int) {
      const Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(std::default_sentinel_t) const { return run_.empty(); }

   private:
    const QueueOrder* order_ = nullptr;
    std::span<QueueEntry* const> run_;
  };

  explicit WaitingQueue(std::unique_ptr<QueueOrder> order) : order_(std::move(order)) {
    CHECK(order_ != nullptr, "a queue without an order");
    counts_service_ = order_->counts_service();
  }

  void insert(LiveSequence& sequence) {
    order_->insert(sequence, prefix_of(sequence));
    sequence.waits = true;
  }
  void erase(LiveSequence& sequence) {
    order_->erase(sequence);
    sequence.waits = false;
  }

  void count_served(const LiveSequence& sequence, int32_t prompt_tokens, int32_t output_tokens) {
    if (counts_service_) {
      order_->count_served(sequence, sequence.owner->root, prompt_tokens, output_tokens);
    }
  }

  [[nodiscard]] Iterator begin() const { return {order_.get(), order_->next(nullptr)}; }
  [[nodiscard]] std::default_sentinel_t end() const { return {}; }
  // The queue must not be empty.
  [[nodiscard]] LiveSequence* front() const { return *begin(); }
  // Null: none of this class waits.
  [[nodiscard]] LiveSequence* head(ServiceClass service_class) const {
    return static_cast<LiveSequence*>(order_->head(service_class));
  }
  [[nodiscard]] size_t size(ServiceClass service_class) const {
    return order_->size(service_class);
  }
  [[nodiscard]] size_t size() const {
    return size(ServiceClass::kLatencySensitive) + size(ServiceClass::kBestEffort);
  }
  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] const QueueOrder& order() const { return *order_; }

  static QueuePrefix prefix_of(const LiveSequence& sequence) {
    return {.tenant = sequence.owner->root, .blocks = sequence.hashes};
  }

 private:
  std::unique_ptr<QueueOrder> order_;
  bool counts_service_ = false;
};

}  // namespace tandem
