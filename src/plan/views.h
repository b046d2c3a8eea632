// What a policy sees: a snapshot, made anew for each decision. Plain data; spans live as long as
// the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/clock.h"
#include "base/ids.h"
#include "base/prompt_rest.h"
#include "plan/admission.h"
#include "plan/budget.h"
#include "plan/queue_order.h"
#include "plan/step.h"
#include "request/sequence_state.h"
#include "request/slo.h"

namespace tandem {

struct SequenceView {
  SequenceId id{};
  RequestId request{};  // the choices of a request share the blocks of its prompt
  SequenceState state = SequenceState::kQueued;
  ServiceClass service_class = ServiceClass::kLatencySensitive;
  int32_t level = 0;
  Nanos arrived{0};
  // Targets; Nanos::max(): none. The first token is due then, on the engine's clock; once it has
  // come there is none.
  Nanos first_token_due = Nanos::max();
  Nanos tpot = Nanos::max();
  // Of one with a TPOT target and at least one output token: when its first came, and when its next
  // should for the mean of all of them to be the target; Nanos::max(): there is no such time.
  Nanos first_token{0};
  Nanos next_token_due = Nanos::max();
  int32_t known_tokens = 0;  // prompt + output so far
  int32_t computed_tokens =
      0;  // of these, with KV; for a waiting one: what the prefix cache holds of it now
  int32_t held_blocks = 0;         // in its table
  int32_t own_blocks = 0;          // of these, free again if it were preempted; of one that stays
                                   // on the host, as it was when its state changed last
  int32_t copy_blocks = 0;         // blocks its next token needs for copy-on-write (0 or 1)
  int32_t cached_free_blocks = 0;  // waiting: cached blocks it would take that count as free now
  int32_t choices = 1;             // sequences it becomes when its prompt is done
  Tier tier = Tier::kAccelerator;  // the authoritative one
  uint8_t lane = 0;                // of its token under way on the host
  // The stage that this token visits next, 0 .. layers: it waits there, or its hop to that stage is
  // in flight. -1: no token is under way, or the policy does not read stages.
  int32_t stage = -1;
  int32_t transfer_blocks = 0;  // at most so many does the other tier need to hold it
  // Admission has promised its first token by first_token_due; without an admission none is.
  bool promised = false;
  int32_t host_failures = 0;  // how often the host failed it and it was computed anew
  [[nodiscard]] int32_t pending_tokens() const { return known_tokens - computed_tokens; }
  [[nodiscard]] PromptRest rest() const { return {computed_tokens, pending_tokens(), choices}; }
  [[nodiscard]] bool decodes() const {
    return pending_tokens() == 1 && state == SequenceState::kDecoding;
  }
  bool operator==(const SequenceView&) const = default;
};

// The whole queue, in its order. Engine thread only, during the call that was given the view.
class QueueView {
 public:
  virtual ~QueueView() = default;
  // As QueueOrder: the entries behind `after`, and the first of a class.
  [[nodiscard]] virtual std::span<const QueueEntry* const> next(const QueueEntry* after) const = 0;
  [[nodiscard]] virtual const QueueEntry* head(ServiceClass service_class) const = 0;
  [[nodiscard]] virtual size_t size(ServiceClass service_class) const = 0;
  [[nodiscard]] virtual QueuePrefix prefix_of(const QueueEntry& entry) const = 0;
  // The sequence as in SystemView::waiting, with what the prefix cache holds of it now; it may be
  // admitted as those are. Absent: it cannot begin yet, because its prefix is on its way from the
  // host.
  [[nodiscard]] virtual std::optional<SequenceView> show(const QueueEntry& entry) const = 0;
};

struct SystemView {
  Nanos now{0};
  int64_t step = 0;
  std::span<const SequenceView> running;  // on the accelerator; oldest admission first
  // Admitted ones whose KV is on the host or on its way there or back; oldest admission first. They
  // decode without being named in a plan. To move back, one must be between two tokens
  // (kParkedWaiting) or without compute (kSwapped).
  std::span<const SequenceView> offloaded;
  // The head of the queue, up to the first sequence that finds no blocks. If classes go before each
  // other, the first best-effort sequence is shown in any case.
  std::span<const SequenceView> waiting;
  // All of the queue, for policies that look past the head. Null: the view was not made by an
  // engine.
  const QueueView* queue = nullptr;
  // If an admission decides: the latency-sensitive sequences that wait behind those shown, in their
  // order, as far as they can matter to first tokens that were promised. Else empty.
  std::span<const AdmittedPrompt> later;
  StepBudget budget;
  // StepResult::ready of the step that was committed since the last planning: what visitors will
  // add to a step like it. 0: no step was committed since. -1: the executor does not count them.
  int64_t ready = -1;
};

}  // namespace tandem
