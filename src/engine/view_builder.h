// Builds what policies see of the engine: a snapshot before each planning. Internal to engine/;
// engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/current_step.h"
#include "engine/host_trust.h"
#include "engine/sequence_table.h"
#include "kv/kv_manager.h"
#include "plan/views.h"

namespace tandem {

struct ViewOptions {
  int32_t max_running = 0;
  // An admission decides, so policies are shown what it accepted and they cannot begin yet.
  bool shows_later = false;
  // The policy reads the stages of offloaded tokens.
  bool shows_stages = false;
};

class ViewBuilder final : public QueueView {
 public:
  ViewBuilder(const ViewOptions& options, SequenceTable& table, const KvManager& kv,
              const StepExecutor& executor, const HostTrust& trust, const CurrentStep& step)
      : options_(options),
        table_(table),
        kv_(kv),
        executor_(executor),
        trust_(trust),
        step_(step) {}

  // Its spans are valid until the next call.
  SystemView make();
  // What is shown of offloaded sequences, which is kept from call to call, is up to date.
  [[nodiscard]] Status audit() const;

  // The queue, for policies that look past its head.
  [[nodiscard]] std::span<const QueueEntry* const> next(const QueueEntry* after) const override {
    return table_.waiting().order().next(after);
  }
  [[nodiscard]] const QueueEntry* head(ServiceClass service_class) const override {
    return table_.waiting().head(service_class);
  }
  [[nodiscard]] size_t size(ServiceClass service_class) const override {
    return table_.waiting().size(service_class);
  }
  [[nodiscard]] QueuePrefix prefix_of(const QueueEntry& entry) const override;
  [[nodiscard]] std::optional<SequenceView> show(const QueueEntry& entry) const override;

 private:
  // Views are filled in place: one that was built elsewhere and copied would be read back while its
  // writes are still on their way to the cache.
  void show(const LiveSequence& sequence, SequenceView& view) const;
  void show_waiting(const LiveSequence& sequence, SequenceView& view) const;
  void show_queue();
  void show_head_of_queue();
  void show_later();
  void show_offloaded(SystemView& view);

  const ViewOptions options_;
  SequenceTable& table_;
  const KvManager& kv_;
  const StepExecutor& executor_;
  const HostTrust& trust_;
  const CurrentStep& step_;
  std::vector<SequenceView> running_;
  std::vector<SequenceView> waiting_;
  std::vector<SequenceView> offloaded_;
  std::vector<AdmittedPrompt> later_;
};

}  // namespace tandem
