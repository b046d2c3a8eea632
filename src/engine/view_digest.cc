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

// What version 1 leaves out.
void add_rest(Digest& digest, const SequenceView& sequence) {
  for (const int64_t field :
       {raw(sequence.request), sequence.first_token_due.count(), sequence.tpot.count(),
        sequence.first_token.count(), sequence.next_token_due.count(),
        static_cast<int64_t>(sequence.tier), int64_t{sequence.transfer_blocks},
        int64_t{sequence.promised}, int64_t{sequence.host_failures}}) {
    digest.add(field);
  }
  if (sequence.stage >= 0) {
    digest.add(sequence.stage);
  }
}

void add_rest(Digest& digest, const SystemView& view) {
  for (const auto& sequences : {view.running, view.waiting, view.offloaded}) {
    digest.add(static_cast<int64_t>(sequences.size()));
    for (const SequenceView& sequence : sequences) {
      add_rest(digest, sequence);
    }
  }
  digest.add(static_cast<int64_t>(view.later.size()));
  for (const AdmittedPrompt& prompt : view.later) {
    for (const int64_t field :
         {int64_t{prompt.level}, prompt.arrived.count(), int64_t{prompt.rest.computed_tokens},
          int64_t{prompt.rest.choices}, int64_t{prompt.output_tokens}, int64_t{prompt.max_tokens},
          int64_t{prompt.held_blocks}}) {
      digest.add(field);
    }
  }
  digest.add(view.budget.total_blocks);
  digest.add(view.budget.host_total_blocks);
  digest.add(view.budget.block_tokens);
  digest.add(view.ready);
}

}  // namespace

uint64_t view_digest(const SystemView& view, int version) {
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
    digest.add(prompt.rest.pending_tokens);
    digest.add(prompt.first_token_due.count());
  }
  if (view.budget.host_total_blocks > 0) {
    digest.add(view.budget.host_free_blocks);
    for (const SequenceView& sequence : view.offloaded) {
      add_sequence(digest, sequence);
      digest.add(sequence.host_failures);
    }
  }
  if (version >= 2) {
    add_rest(digest, view);
  }
  return digest.value();
}

}  // namespace tandem
