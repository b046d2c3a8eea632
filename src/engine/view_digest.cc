#include <array>

#include "engine/recorder.h"

namespace tandem {
namespace {

// FNV-1a over whole numbers: order matters, machine and build do not.
class Digest {
 public:
  void add(int64_t number) {
    for (int byte = 0; byte < 8; ++byte) {
      value_ =
          (value_ ^ ((static_cast<uint64_t>(number) >> (8 * byte)) & 0xffU)) * 1099511628211ULL;
    }
  }
  [[nodiscard]] uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 14695981039346656037ULL;
};

void add_sequence(Digest& digest, const SequenceView& sequence) {
  const std::array<int64_t, 12> fields = {raw(sequence.id),
                                          static_cast<int64_t>(sequence.state),
                                          static_cast<int64_t>(sequence.service_class),
                                          sequence.level,
                                          sequence.arrived.count(),
                                          sequence.known_tokens,
                                          sequence.computed_tokens,
                                          sequence.held_blocks,
                                          sequence.own_blocks,
                                          sequence.copy_blocks,
                                          sequence.cached_free_blocks,
                                          sequence.choices};
  for (const int64_t field : fields) {
    digest.add(field);
  }
  if (sequence.first_token_due != Nanos::max() || sequence.tpot != Nanos::max()) {
    digest.add(sequence.first_token_due.count());
    digest.add(sequence.tpot.count());
    digest.add(sequence.next_token_due.count());
  }
  if (sequence.promised) {
    digest.add(1);
  }
}

}  // namespace

uint64_t view_digest(const SystemView& view) {
  Digest digest;
  digest.add(view.now.count());
  digest.add(view.step);
  digest.add(view.budget.tokens);
  digest.add(view.budget.logit_rows);
  digest.add(view.budget.sequences);
  digest.add(view.budget.free_blocks);
  for (const SequenceView& sequence : view.running) {
    add_sequence(digest, sequence);
  }
  digest.add(-1);
  for (const SequenceView& sequence : view.waiting) {
    add_sequence(digest, sequence);
  }
  for (const AdmittedPrompt& prompt : view.later) {
    digest.add(prompt.pending_tokens);
    digest.add(prompt.first_token_due.count());
  }
  if (view.budget.host_total_blocks > 0) {
    digest.add(view.budget.host_free_blocks);
    for (const SequenceView& sequence : view.offloaded) {
      add_sequence(digest, sequence);
      digest.add(sequence.host_failures);
    }
  }
  return digest.value();
}

}  // namespace tandem
