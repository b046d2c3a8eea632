#include "exec/forward_executor.h"

#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "exec/batch_layout.h"
#include "exec/completion_notifier.h"
#include "exec/executor_checks.h"
#include "exec/forward/stages.h"
#include "exec/host_tier/host_tier.h"
#include "exec/step_run.h"
#include "exec/step_sampling.h"
#include "exec/step_staging.h"
#include "exec/workspaces.h"

namespace tandem {
namespace {

using device::CopyOp;
using device::Device;
using device::Memory;
using device::MemoryKind;

StepBounds bounds_for(const model::ModelConfig& config, const kernels::KvLayout& layout,
                      const ExecutorOptions& options) {
  return {
      .limits = {.max_batched_tokens = options.max_batched_tokens,
                 .max_logit_rows = options.max_logit_rows,
                 .total_blocks = total_blocks(layout, options),
                 .block_tokens = layout.block_tokens,
                 .host_blocks = options.host.kv_bytes / layout.block_bytes(),
                 .offloaded_sequences = has_host_tier(options) ? options.host.sequences : 0,
                 .hops_per_token = has_host_tier(options) ? config.layers : 0,
                 .staging_blocks = has_host_tier(options) ? staging_blocks(layout, options) : 0},
      .vocabulary = config.vocabulary};
}

}  // namespace

class ForwardExecutor::Impl {
 public:
  Impl(const model::ModelConfig& config, const model::Weights& weights, Device& device,
       const ExecutorOptions& options, std::function<void()> on_complete)
      : config_(config),
        weights_(weights),
        device_(device),
        layout_(kv_layout_for(config, options)),
        bounds_(bounds_for(config, layout_, options)),
        histories_(bounds_.limits.total_blocks + bounds_.limits.staging_blocks,
                   layout_.block_tokens),
        staging_(device, kStagedSteps),
        stream_(device.create_stream()),
        notifier_(std::make_shared<CompletionNotifier>(device, std::move(on_complete))),
        sampling_(config_, weights_, bounds_.limits,
                  {.device = device_, .stream = stream_, .keep_logits = options.keep_logits}) {}

  ~Impl() {
    if (run_ != nullptr && run_->last_event()) {
      device_.synchronize(*run_->last_event());
    }
    tier_.reset();
    device_.set_listener({});
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status allocate(const ExecutorOptions& options);
  // The device calls `notifier_` from here on.
  void listen() {
    device_.set_listener([notifier = notifier_] { notifier->ring(); });
  }
  void launch(const StepInput& input);
  bool poll(StepResult& result);
  void wait_no_longer() { run_->wait_no_longer(); }
  void leave(SequenceId offloaded);
  TierEvents take_tier_events();
  [[nodiscard]] TierCounts tier_counts() const {
    return tier_ == nullptr ? TierCounts{} : tier_->counts();
  }
  [[nodiscard]] const Error* failure() const { return device_.failure(); }
  [[nodiscard]] int32_t next_stage(SequenceId offloaded) const {
    return tier_ == nullptr ? -1 : tier_->queues().next_stage(offloaded);
  }

  [[nodiscard]] piggyback::AttentionWorkers& workers() {
    CHECK(tier_ != nullptr, "there is one tier");
    return tier_->workers();
  }
  [[nodiscard]] HostProbe& probe() {
    CHECK(probe_.has_value(), "there is one tier");
    return *probe_;
  }

  [[nodiscard]] const ExecutorLimits& limits() const { return bounds_.limits; }
  [[nodiscard]] const std::vector<float>& kept_logits() const { return sampling_.kept_logits(); }

 private:
  void launch_copies(const StepInput& input);
  std::optional<StepRun::HostParts> host_parts(const ExecutorOptions& options);
  Status upload_frequencies(double* target, const ExecutorOptions& options);

  const model::ModelConfig config_;
  const model::Weights& weights_;
  Device& device_;
  const kernels::KvLayout layout_;
  const StepBounds bounds_;
  HistoryBlocks histories_;
  StepStaging staging_;
  const device::StreamId stream_;
  const std::shared_ptr<CompletionNotifier> notifier_;  // shared with threads that may call it late
  StepSampling sampling_;
  std::unique_ptr<Memory> kv_;
  std::unique_ptr<Memory> activations_;
  std::unique_ptr<Memory> partials_;
  std::unique_ptr<HostTier> tier_;  // null: one tier
  std::optional<HostProbe> probe_;  // with two tiers
  std::unique_ptr<Stages> stages_;
  std::unique_ptr<StepRun> run_;
  int64_t step_ = 0;
};

Status ForwardExecutor::Impl::allocate(const ExecutorOptions& options) {
  const WorkspaceSizes sizes = workspace_sizes(config_, weights_, options);
  const int64_t kv_bytes = bounds_.limits.total_blocks * layout_.block_bytes();
  ASSIGN_OR_RETURN(kv_, device_.allocate({.bytes = kv_bytes,
                                          .purpose = device::MemoryPurpose::kKv,
                                          .unit_bytes = layout_.block_bytes()}));
  ASSIGN_OR_RETURN(activations_, device_.allocate(MemoryKind::kDevice, sizes.activations));
  ASSIGN_OR_RETURN(partials_, device_.allocate(MemoryKind::kDevice, sizes.partials));
  RETURN_IF_ERROR(sampling_.allocate(sizes));
  RETURN_IF_ERROR(staging_.allocate(sizes.staging));

  StageBuffers buffers = place_buffers(config_, weights_, options, activations_->data());
  buffers.logits = sampling_.logits();
  buffers.kv = kv_->data();
  buffers.attention_workspace = reinterpret_cast<float*>(partials_->data());
  buffers.attention_workspace_floats = sizes.partials / static_cast<int64_t>(sizeof(float));
  if (has_host_tier(options)) {
    ASSIGN_OR_RETURN(tier_, HostTier::create({.config = config_,
                                              .weights = weights_,
                                              .device = device_,
                                              .options = options,
                                              .device_kv = kv_->data(),
                                              .notifier = notifier_}));
    tier_->place(buffers);
    probe_.emplace(tier_->make_probe());
  }
  stages_ = std::make_unique<Stages>(config_, weights_, layout_, buffers);
  run_ = std::make_unique<StepRun>(StepRun::Parts{.device = device_,
                                                  .stream = stream_,
                                                  .stages = *stages_,
                                                  .sampling = sampling_,
                                                  .host = host_parts(options)},
                                   bounds_.limits, config_.layers);
  RETURN_IF_ERROR(run_->allocate(host_tier_sizes(config_, weights_, options)));
  return upload_frequencies(buffers.inverse_frequency, options);
}

std::optional<StepRun::HostParts> ForwardExecutor::Impl::host_parts(
    const ExecutorOptions& options) {
  if (tier_ == nullptr) {
    return std::nullopt;
  }
  const HostTierOptions& host = options.host;
  return StepRun::HostParts{
      .hops = tier_->queues(),
      .carrier = tier_->carrier(),
      .tokens = tier_->tokens(),
      .notifier = *notifier_,
      .clock = *host.clock,
      .binder = *host.binder,
      .staging = tier_->staging(),
      .group_stages = host.group_stages,
      .binds = host.timeline == nullptr ? nullptr : &host.timeline->add_track("engine", "binds")};
}

Status ForwardExecutor::Impl::upload_frequencies(double* target, const ExecutorOptions& options) {
  const std::vector<double> frequencies =
      model::rope_inverse_frequencies(config_, options.served_positions);
  const auto bytes = static_cast<int64_t>(frequencies.size() * sizeof(double));
  CHECK(static_cast<int32_t>(frequencies.size()) == config_.head_dim / 2, "{} frequencies",
        frequencies.size());
  const StagingPlace place = staging_.next(bytes);
  std::memcpy(place.host, frequencies.data(), static_cast<size_t>(bytes));
  device_.launch(stream_, CopyOp{target, place.host, bytes});
  device_.synchronize(device_.record(stream_));
  if (const Error* failure = device_.failure()) {
    return *failure;
  }
  return {};
}

void ForwardExecutor::Impl::launch_copies(const StepInput& input) {
  for (const BlockCopy& copy : input.copies) {
    const int64_t total = bounds_.limits.total_blocks;
    CHECK(raw(copy.source) >= 0 && raw(copy.source) < total && raw(copy.target) >= 0 &&
              raw(copy.target) < total,
          "copy of block {} to {} of {}", raw(copy.source), raw(copy.target), total);
    const int64_t bytes = layout_.block_bytes();
    device_.launch(stream_, CopyOp{kv_->data() + raw(copy.target) * bytes,
                                   kv_->data() + raw(copy.source) * bytes, bytes});
  }
}

void ForwardExecutor::Impl::launch(const StepInput& input) {
  CHECK(tier_ != nullptr ||
            (input.transfers.empty() && input.entering.empty() && input.lane_moves.empty()),
        "step {} needs a host tier, but there is none", input.step);
  launch_copies(input);
  const StepSize size = measure_step(input, histories_);
  const int64_t bytes = staging_bytes(size, bounds_.limits);
  const StagingPlace place = staging_.next(bytes);
  const StepInputs inputs = lay_out_step(input, size, bounds_, histories_, place);
  sampling_.begin(input);
  if (inputs.staged.shape.rows > 0) {
    tier_->staging()->begin(input);
  }
  for (const TierTransfer& transfer : input.transfers) {
    tier_->start(transfer);
  }
  for (const LaneMove& move : input.lane_moves) {
    tier_->move_lane(move);
  }
  for (const OffloadedToken& token : input.entering) {
    tier_->enter(token);
  }
  if (inputs.rows > 0) {
    device_.launch(stream_, CopyOp{place.device, place.host, bytes});
  }
  step_ = input.step;
  run_->begin(step_, input.mode, inputs);
}

bool ForwardExecutor::Impl::poll(StepResult& result) {
  if (tier_ != nullptr) {
    tier_->pump();
    if (tier_->has_events()) {
      run_->wait_no_longer();
    }
  }
  if (!run_->advance()) {
    return false;
  }
  if (device_.failure() != nullptr) {
    result = StepResult{.step = step_, .samples = {}, .scored = {}, .visitors = {}};
    return true;
  }
  result.step = step_;
  run_->count_visits(result);
  result.host = tier_ == nullptr ? HostWork{} : tier_->take_work();
  sampling_.collect(result);
  return true;
}

void ForwardExecutor::Impl::leave(SequenceId offloaded) {
  CHECK(tier_ != nullptr, "sequence {} cannot leave: there is one tier", raw(offloaded));
  tier_->leave(offloaded);
}

TierEvents ForwardExecutor::Impl::take_tier_events() {
  if (tier_ == nullptr) {
    return {};
  }
  run_->take_groups();  // a step may have been seen to end before its last group was
  return tier_->take_events();
}

Result<std::unique_ptr<ForwardExecutor>> ForwardExecutor::create(
    const model::ModelConfig& config, const model::Weights& weights, device::Device& device,
    const ExecutorOptions& given, std::function<void()> on_complete) {
  ExecutorOptions options = given;
  use_threads(device, options);
  const bool host_kernels_run = options.host.kv_bytes > 0 && !options.host.attention;
  RETURN_IF_ERROR(check_options(config, options, device.caps().needs_weights || host_kernels_run));
  check_weights(config, weights);
  auto impl = std::make_unique<Impl>(config, weights, device, options, std::move(on_complete));
  RETURN_IF_ERROR(impl->allocate(options));
  impl->listen();
  return std::unique_ptr<ForwardExecutor>(new ForwardExecutor(std::move(impl)));
}

ForwardExecutor::ForwardExecutor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ForwardExecutor::~ForwardExecutor() = default;

const ExecutorLimits& ForwardExecutor::limits() const { return impl_->limits(); }
void ForwardExecutor::launch(const StepInput& input) { impl_->launch(input); }
bool ForwardExecutor::poll(StepResult& result) { return impl_->poll(result); }
const Error* ForwardExecutor::failure() const { return impl_->failure(); }

void ForwardExecutor::wait_no_longer() { impl_->wait_no_longer(); }
// A worker that hangs reports nothing: polling notices how old its work is.
Nanos ForwardExecutor::next_check(Nanos now) const {
  constexpr Nanos kLookAgain = std::chrono::milliseconds(250);
  return limits().host_blocks > 0 ? now + kLookAgain : Nanos::max();
}
void ForwardExecutor::leave(SequenceId offloaded) { impl_->leave(offloaded); }
TierEvents ForwardExecutor::take_tier_events() { return impl_->take_tier_events(); }
TierCounts ForwardExecutor::tier_counts() const { return impl_->tier_counts(); }
int32_t ForwardExecutor::next_stage(SequenceId offloaded) const {
  return impl_->next_stage(offloaded);
}
void ForwardExecutor::freeze_host() { impl_->workers().freeze(); }
void ForwardExecutor::thaw_host() { impl_->workers().thaw(); }
int64_t ForwardExecutor::tasks_in_hand() const { return impl_->workers().in_hand(); }
HostProbeLimits ForwardExecutor::probe_limits() const { return impl_->probe().limits(); }
Result<Nanos> ForwardExecutor::time_host_attention(int32_t rows, int32_t context) {
  return impl_->probe().time_attention(rows, context);
}
Nanos ForwardExecutor::time_link(TransferKind kind, int64_t bytes) {
  return impl_->probe().time_copy(kind, bytes);
}
const std::vector<float>& ForwardExecutor::kept_logits() const { return impl_->kept_logits(); }

}  // namespace tandem
