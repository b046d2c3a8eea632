// Fairness between tenants (virtual token counters; Sheng et al., OSDI 2024): each tenant, that is
// each API key, has a counter of the tokens it was served, prompt tokens once and output tokens
// twice. Of the tenants that wait, the tenant with the lowest counter goes first, and inside a
// tenant requests go first come, first served. Lower levels go first; counters are of all levels.
//
// A tenant that comes back after a pause has no credit: its counter is raised to the lowest of the
// tenants that wait, or, if none waits, to that of the tenant that waited last. So two tenants that
// both wait all the time differ by at most the tokens of one prompt and of the sequences that run.
//
// This is an order of one class: it takes entries of both and makes no difference between them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/queue_order.h"

namespace tandem {

class VtcOrder final : public QueueOrder {
 public:
  static constexpr int64_t kOutputWeight = 2;  // of a token, beside 1 for one of a prompt

  [[nodiscard]] bool classes_first() const override { return false; }
  void insert(QueueEntry& entry, const QueuePrefix& prefix) override;
  void erase(QueueEntry& entry) override;
  [[nodiscard]] bool counts_service() const override { return true; }
  void count_served(const QueueEntry& entry, const BlockHash& tenant, int32_t prompt_tokens,
                    int32_t output_tokens) override;
  [[nodiscard]] std::span<QueueEntry* const> next(const QueueEntry* after) const override;
  [[nodiscard]] QueueEntry* head(ServiceClass service_class) const override;
  [[nodiscard]] size_t size(ServiceClass service_class) const override;

 private:
  using Key = std::pair<RequestId, int32_t>;  // rises with arrival
  using Waiting = std::map<Key, QueueEntry*>;
  struct Tenant {
    int64_t served = 0;
    std::map<int32_t, Waiting> levels;  // none is empty
  };
  using Tenants = std::unordered_map<BlockHash, Tenant, BlockHashIndex>;

  // A tenant whose next request of the level may be picked.
  struct Candidate {
    int64_t served = 0;
    Key key;
    const Tenant* tenant = nullptr;
    Waiting::const_iterator next;
    // The heap's top is the lowest counter, then the oldest request.
    friend bool operator<(const Candidate& a, const Candidate& b) {
      return std::pair(b.served, b.key) < std::pair(a.served, a.key);
    }
  };
  // The entries in order, as far as they were read; begun anew after each change. It counts the
  // prompts of entries before, as if they had been admitted.
  struct Line {
    std::vector<QueueEntry*> entries;
    std::unordered_map<const QueueEntry*, size_t> places;
    std::vector<Candidate> heap;  // of the level
    std::unordered_map<const Tenant*, int64_t> served;
    int32_t level = 0;
    bool begun = false;
  };

  static Key key_of(const QueueEntry& entry) { return {entry.request, entry.choice}; }
  [[nodiscard]] int64_t min_served() const;
  void forget_absent();
  void begin_line() const;
  // The lowest level with entries that is at least `lowest`; false: there is none.
  bool begin_level(int64_t lowest) const;
  bool extend_line() const;
  [[nodiscard]] std::span<QueueEntry* const> line_from(size_t place) const;

  Tenants tenants_;
  std::unordered_map<const QueueEntry*, Tenant*> waiting_;
  size_t waiting_tenants_ = 0;
  const Tenant* last_ = nullptr;  // whose request left the queue last
  std::array<size_t, kServiceClasses> sizes_{};
  mutable Line line_;
};

}  // namespace tandem
