// The order in which sequences wait, as an object: a policy makes it, the engine's queue owns it
// and puts every waiting sequence into it. What is shown of the queue is read from it in its order.
// Batches order their lines by another such object (jobs/line_order.h).
//
// Threads: one at a time; the engine's queue belongs to the engine's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/block_hash.h"
#include "base/clock.h"
#include "base/ids.h"
#include "request/slo.h"

namespace tandem {

// A sequence as an order sees it. Its fields do not change while it waits.
struct QueueEntry {
  SequenceId id{};
  RequestId request{};  // rises with arrival
  Nanos arrived{0};
  Nanos first_token_due = Nanos::max();  // Nanos::max(): no target
  int32_t choice = 0;
  int32_t choices = 1;  // sequences it becomes when its prompt is done: itself and its forks
  int32_t level = 0;    // lower goes first
  int32_t prompt_tokens = 0;
  ServiceClass service_class = ServiceClass::kLatencySensitive;
  bool was_admitted = false;  // it waits again, and its prompt was counted
};

// What its tokens begin with. Equal leading names of two entries mean equal leading blocks of
// tokens of the same tenant, so the names of all entries form a prefix tree.
struct QueuePrefix {
  BlockHash tenant;
  std::span<const BlockHash> blocks;  // of all full blocks; valid during insert()
};

class QueueOrder {
 public:
  virtual ~QueueOrder() = default;
  // True: all latency-sensitive entries stand before all best-effort ones.
  [[nodiscard]] virtual bool classes_first() const = 0;

  // The entry must stay where it is until it is erased. Both take O(log n).
  virtual void insert(QueueEntry& entry, const QueuePrefix& prefix) = 0;
  virtual void erase(QueueEntry& entry) = 0;

  // Whether prefixes of best-effort entries make a difference.
  [[nodiscard]] virtual bool reads_prefixes() const { return false; }

  // Whether count_served() is to be called; asked once, when an engine is made.
  [[nodiscard]] virtual bool counts_service() const { return false; }
  // A sequence of this tenant was admitted for the first time (its prompt's tokens), or got output
  // tokens. For orders that are fair between tenants.
  virtual void count_served(const QueueEntry& /*entry*/, const BlockHash& /*tenant*/,
                            int32_t /*prompt_tokens*/, int32_t /*output_tokens*/) {}

  // The entries that follow `after`, in order; null: from the head of the queue. At least one,
  // unless `after` is the last, and as many as lie together. Valid until the next insert or erase.
  [[nodiscard]] virtual std::span<QueueEntry* const> next(const QueueEntry* after) const = 0;
  // The first of a class; null: none waits.
  [[nodiscard]] virtual QueueEntry* head(ServiceClass service_class) const = 0;
  [[nodiscard]] virtual size_t size(ServiceClass service_class) const = 0;
};

}  // namespace tandem
