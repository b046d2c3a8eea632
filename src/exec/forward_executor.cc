#include "exec/forward_executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "exec/batch_layout.h"
#include "exec/forward/stages.h"
#include "exec/step_staging.h"
#include "exec/workspaces.h"

namespace tandem {
namespace {

using device::CopyOp;
using device::Device;
using device::Memory;
using device::MemoryKind;

Status check_options(const model::ModelConfig& config, const ExecutorOptions& options) {
  constexpr int32_t kMaxRows = 1 << 20;  // keeps every index of a step's arrays far from overflow
  if (options.max_batched_tokens < 1 || options.max_batched_tokens > kMaxRows) {
    return invalid_argument(fmt::format("max_batched_tokens is {}; it must be 1 .. {}",
                                        options.max_batched_tokens, kMaxRows),
                            "max_batched_tokens");
  }
  if (options.max_logit_rows < 1 || options.max_logit_rows > kMaxRows) {
    return invalid_argument(
        fmt::format("max_logit_rows is {}; it must be 1 .. {}", options.max_logit_rows, kMaxRows),
        "max_logit_rows");
  }
  if (options.kv_type != ElementType::kF32 && options.kv_type != ElementType::kBF16) {
    return invalid_argument(fmt::format("KV of type {}; float32 and bfloat16 can be stored",
                                        element_name(options.kv_type)),
                            "kv_type");
  }
  constexpr int32_t kBlockMultiple = 16;
  const int32_t block = options.block_tokens;
  if (block != 0 &&
      (block < 0 || block % kBlockMultiple != 0 || kernels::kSplitTokens % block != 0)) {
    return invalid_argument(
        fmt::format("block_tokens is {}; it must be 16, 32, 64, 128 or 256, or 0 to choose", block),
        "block_tokens");
  }
  const kernels::KvLayout layout = kv_layout_for(config, options);
  const int64_t blocks = total_blocks(layout, options);
  if (blocks < 1) {
    return invalid_argument(
        fmt::format("a KV pool of {} holds no block; one block of {} tokens takes {}",
                    format_bytes(std::max<int64_t>(options.kv_bytes, 0)), layout.block_tokens,
                    format_bytes(layout.block_bytes())),
        "kv_bytes");
  }
  if (blocks > std::numeric_limits<int32_t>::max()) {
    return invalid_argument(
        fmt::format("a KV pool of {} has {} blocks; at most {} can be named: "
                    "use larger blocks",
                    format_bytes(options.kv_bytes), blocks, std::numeric_limits<int32_t>::max()),
        "kv_bytes");
  }
  return {};
}

void check_weights(const model::ModelConfig& config, const model::Weights& weights) {
  const int64_t attention = int64_t{config.heads} * weights.padded_head_dim;
  CHECK(static_cast<int32_t>(weights.layers.size()) == config.layers, "{} layers of {}",
        weights.layers.size(), config.layers);
  CHECK(weights.padded_head_dim == kernels::round_up(config.head_dim, kernels::kHeadDimMultiple),
        "head dim {} padded to {}", config.head_dim, weights.padded_head_dim);
  CHECK(weights.embedding.k == weights.padded_hidden && weights.lm_head.k == weights.padded_hidden,
        "embedding and LM head of depth {}, {}", weights.embedding.k, weights.lm_head.k);
  CHECK(weights.lm_head.n == weights.padded_vocabulary, "LM head of {} columns", weights.lm_head.n);
  for (const model::LayerWeights& layer : weights.layers) {
    CHECK(layer.qkv.n == attention + 2 * int64_t{config.kv_heads} * weights.padded_head_dim &&
              layer.output.k == attention && layer.output.n == weights.padded_hidden,
          "QKV of {} columns, out-projection {} x {}", layer.qkv.n, layer.output.n, layer.output.k);
    CHECK(layer.gate_up.n == 2 * int64_t{weights.padded_intermediate} &&
              layer.down.k == weights.padded_intermediate,
          "gate and up of {} columns, down of depth {}", layer.gate_up.n, layer.down.k);
  }
}

LogprobInfo logprobs_of(const kernels::SampleResult& result) {
  LogprobInfo info{.logprob = result.logprob, .rank = result.rank, .top = {}};
  info.top.reserve(static_cast<size_t>(result.top_count));
  for (int32_t i = 0; i < result.top_count; ++i) {
    info.top.push_back({.token = result.top_tokens[i], .logprob = result.top_logprobs[i]});
  }
  return info;
}

}  // namespace

class ForwardExecutor::Impl {
 public:
  Impl(const model::ModelConfig& config, const model::Weights& weights, Device& device,
       const ExecutorOptions& options)
      : config_(config),
        weights_(weights),
        device_(device),
        layout_(kv_layout_for(config, options)),
        bounds_{.limits = {.max_batched_tokens = options.max_batched_tokens,
                           .max_logit_rows = options.max_logit_rows,
                           .total_blocks = total_blocks(layout_, options),
                           .block_tokens = layout_.block_tokens},
                .vocabulary = config.vocabulary},
        staging_(device),
        stream_(device.create_stream()) {}

  ~Impl() {
    if (last_event_) {
      device_.synchronize(*last_event_);
    }
    device_.set_listener({});
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status allocate(const ExecutorOptions& options);
  void launch(const StepInput& input);
  std::optional<StepResult> poll();

  [[nodiscard]] const ExecutorLimits& limits() const { return bounds_.limits; }
  void keep_logits(bool keep) { keep_logits_ = keep; }
  [[nodiscard]] const std::vector<float>& kept_logits() const { return kept_logits_; }

 private:
  struct PendingSample {
    SequenceId sequence{};
    bool logprobs = false;
  };

  void launch_forward(const StepInputs& inputs);
  void launch_sampling(const StepInputs& inputs);
  void launch_scoring(const StepInputs& inputs);
  void launch_copy_of_logits(int64_t rows);
  void take_kept_logits();

  const model::ModelConfig config_;
  const model::Weights& weights_;
  Device& device_;
  const kernels::KvLayout layout_;
  const StepBounds bounds_;
  StepStaging staging_;
  const device::StreamId stream_;
  std::unique_ptr<Memory> kv_;
  std::unique_ptr<Memory> activations_;
  std::unique_ptr<Memory> logits_;
  std::unique_ptr<Memory> device_results_;  // [max_logit_rows] kernels::SampleResult
  std::unique_ptr<Memory> host_results_;
  std::unique_ptr<Memory> host_logits_;  // only when logits are kept
  std::unique_ptr<Memory> host_scored_;  // only once prompt tokens were scored: one for each row
  std::unique_ptr<Stages> stages_;

  bool in_flight_ = false;
  int64_t step_ = 0;
  std::vector<PendingSample> pending_;  // of the step in flight, in the order of its samples
  std::optional<device::EventId> last_event_;
  int32_t scored_count_ = 0;  // of the step in flight
  bool keep_logits_ = false;
  bool logits_copied_ = false;  // the step in flight keeps its logits
  std::vector<float> kept_logits_;
};

Status ForwardExecutor::Impl::allocate(const ExecutorOptions& options) {
  const WorkspaceSizes sizes = workspace_sizes(config_, weights_, options);
  const int64_t kv_bytes = bounds_.limits.total_blocks * layout_.block_bytes();
  ASSIGN_OR_RETURN(kv_, device_.allocate(MemoryKind::kDevice, kv_bytes));
  ASSIGN_OR_RETURN(activations_, device_.allocate(MemoryKind::kDevice, sizes.activations));
  ASSIGN_OR_RETURN(logits_, device_.allocate(MemoryKind::kDevice, sizes.logits));
  ASSIGN_OR_RETURN(device_results_, device_.allocate(MemoryKind::kDevice, sizes.device_results));
  ASSIGN_OR_RETURN(host_results_, device_.allocate(MemoryKind::kHostPinned, sizes.host_results));
  RETURN_IF_ERROR(staging_.allocate(sizes.staging));
  pending_.reserve(static_cast<size_t>(options.max_logit_rows));

  StageBuffers buffers = place_buffers(config_, weights_, options, activations_->data());
  buffers.logits = reinterpret_cast<float*>(logits_->data());
  buffers.kv = kv_->data();
  stages_ = std::make_unique<Stages>(config_, weights_, layout_, buffers);

  const std::vector<double> frequencies =
      model::rope_inverse_frequencies(config_, options.served_positions);
  const auto frequency_bytes = static_cast<int64_t>(frequencies.size() * sizeof(double));
  CHECK(static_cast<int32_t>(frequencies.size()) == config_.head_dim / 2, "{} frequencies",
        frequencies.size());
  const StagingPlace place = staging_.next(frequency_bytes);
  std::memcpy(place.host, frequencies.data(), static_cast<size_t>(frequency_bytes));
  device_.launch(stream_, CopyOp{buffers.inverse_frequency, place.host, frequency_bytes});
  device_.synchronize(device_.record(stream_));
  return {};
}

void ForwardExecutor::Impl::launch(const StepInput& input) {
  CHECK(!in_flight_, "step {} is launched while step {} runs", input.step, step_);
  CHECK(input.transfers.empty() && input.entering.empty(),
        "step {}: {} transfers and {} offloaded tokens, but there is one tier only", input.step,
        input.transfers.size(), input.entering.size());
  for (const BlockCopy& copy : input.copies) {
    const int64_t total = bounds_.limits.total_blocks;
    CHECK(raw(copy.source) >= 0 && raw(copy.source) < total && raw(copy.target) >= 0 &&
              raw(copy.target) < total,
          "copy of block {} to {} of {}", raw(copy.source), raw(copy.target), total);
    const int64_t bytes = layout_.block_bytes();
    device_.launch(stream_, CopyOp{kv_->data() + raw(copy.target) * bytes,
                                   kv_->data() + raw(copy.source) * bytes, bytes});
  }
  const StepSize size = measure_step(input);
  const int64_t bytes = staging_bytes(size);
  const StagingPlace place = staging_.next(bytes);
  const StepInputs inputs = lay_out_step(input, size, bounds_, place);
  pending_.clear();
  for (const StepSlice& slice : input.slices) {
    for (const SampleSpec& spec : slice.samples) {
      pending_.push_back({spec.sequence, spec.params->logprobs >= 0});
    }
  }
  logits_copied_ = false;
  if (inputs.rows > 0) {
    device_.launch(stream_, CopyOp{place.device, place.host, bytes});
    launch_forward(inputs);
  }
  if (inputs.sample_count > 0) {
    launch_sampling(inputs);
  }
  scored_count_ = inputs.scored_count;
  if (inputs.scored_count > 0) {
    launch_scoring(inputs);
  }
  last_event_ = device_.record(stream_);
  step_ = input.step;
  in_flight_ = true;
}

void ForwardExecutor::Impl::launch_forward(const StepInputs& inputs) {
  const int32_t last = config_.layers;
  for (int32_t stage = 0; stage < last; ++stage) {
    stages_->launch_stage(device_, stream_, inputs, stage);
    // The last layer's K and V are in place now; nobody reads the rest of a step without samples.
    if (stage + 1 < last || inputs.sample_count > 0 || inputs.scored_count > 0) {
      stages_->launch_attention(device_, stream_, inputs, stage);
    }
  }
  if (inputs.sample_count > 0) {
    stages_->launch_stage(device_, stream_, inputs, last);
  }
}

void ForwardExecutor::Impl::launch_sampling(const StepInputs& inputs) {
  if (keep_logits_) {
    launch_copy_of_logits(inputs.sample_count);
  }
  device_.launch(stream_, kernels::SampleArgs{.logits = reinterpret_cast<float*>(logits_->data()),
                                              .stride = weights_.padded_vocabulary,
                                              .vocabulary = config_.vocabulary,
                                              .rows = inputs.samples,
                                              .results = reinterpret_cast<kernels::SampleResult*>(
                                                  device_results_->data()),
                                              .row_count = inputs.sample_count});
  device_.launch(stream_,
                 CopyOp{host_results_->data(), device_results_->data(),
                        static_cast<int64_t>(sizeof(kernels::SampleResult)) * inputs.sample_count});
}

// The last stage once more for the rows of a prompt that are scored, as many at a time as there are
// logit rows. It works on gathered copies, so the rows stay as they are.
void ForwardExecutor::Impl::launch_scoring(const StepInputs& inputs) {
  constexpr auto kResultBytes = static_cast<int64_t>(sizeof(kernels::SampleResult));
  if (!host_scored_) {
    auto memory =
        device_.allocate(MemoryKind::kHostPinned, bounds_.limits.max_batched_tokens * kResultBytes);
    CHECK(memory.ok(), "room for scored prompt tokens: {}", memory.error().message);
    host_scored_ = std::move(memory).value();
  }
  auto* results = reinterpret_cast<kernels::SampleResult*>(device_results_->data());
  for (int32_t begin = 0; begin < inputs.scored_count; begin += bounds_.limits.max_logit_rows) {
    StepInputs part = inputs;
    part.sample_count = std::min(bounds_.limits.max_logit_rows, inputs.scored_count - begin);
    part.sampled_rows = inputs.scored_rows + begin;
    part.every_row_is_sampled_in_order = false;
    stages_->launch_stage(device_, stream_, part, config_.layers);
    device_.launch(stream_, kernels::SampleArgs{.logits = reinterpret_cast<float*>(logits_->data()),
                                                .stride = weights_.padded_vocabulary,
                                                .vocabulary = config_.vocabulary,
                                                .rows = inputs.scored + begin,
                                                .results = results,
                                                .row_count = part.sample_count});
    device_.launch(stream_, CopyOp{host_scored_->data() + begin * kResultBytes, results,
                                   part.sample_count * kResultBytes});
  }
}

void ForwardExecutor::Impl::launch_copy_of_logits(int64_t rows) {
  if (!host_logits_) {
    auto memory = device_.allocate(MemoryKind::kHostPinned, logits_->bytes());
    CHECK(memory.ok(), "keeping logits: {}", memory.error().message);
    host_logits_ = std::move(memory).value();
  }
  device_.launch(stream_,
                 CopyOp{host_logits_->data(), logits_->data(),
                        rows * weights_.padded_vocabulary * static_cast<int64_t>(sizeof(float))});
  logits_copied_ = true;
}

void ForwardExecutor::Impl::take_kept_logits() {
  const auto* logits = reinterpret_cast<const float*>(host_logits_->data());
  kept_logits_.clear();
  for (size_t row = 0; row < pending_.size(); ++row) {
    const float* begin = logits + static_cast<int64_t>(row) * weights_.padded_vocabulary;
    kept_logits_.insert(kept_logits_.end(), begin, begin + config_.vocabulary);
  }
}

std::optional<StepResult> ForwardExecutor::Impl::poll() {
  if (!in_flight_ || !device_.query(*last_event_)) {
    return std::nullopt;
  }
  in_flight_ = false;
  if (logits_copied_) {
    take_kept_logits();
  }
  StepResult result{.step = step_, .samples = {}, .scored = {}};
  result.samples.reserve(pending_.size());
  const auto* sampled = reinterpret_cast<const kernels::SampleResult*>(host_results_->data());
  for (size_t i = 0; i < pending_.size(); ++i) {
    SampledToken token{.sequence = pending_[i].sequence, .token = sampled[i].token, .logprobs = {}};
    if (pending_[i].logprobs && sampled[i].token >= 0) {
      token.logprobs = logprobs_of(sampled[i]);
    }
    result.samples.push_back(std::move(token));
  }
  result.scored.reserve(static_cast<size_t>(scored_count_));
  for (int32_t i = 0; i < scored_count_; ++i) {
    const auto& one = reinterpret_cast<const kernels::SampleResult*>(host_scored_->data())[i];
    result.scored.push_back(one.token >= 0 ? logprobs_of(one)
                                           : LogprobInfo{.logprob = NAN, .rank = 0, .top = {}});
  }
  return result;
}

Result<std::unique_ptr<ForwardExecutor>> ForwardExecutor::create(
    const model::ModelConfig& config, const model::Weights& weights, device::Device& device,
    const ExecutorOptions& options, std::function<void()> on_complete) {
  RETURN_IF_ERROR(check_options(config, options));
  check_weights(config, weights);
  auto impl = std::make_unique<Impl>(config, weights, device, options);
  RETURN_IF_ERROR(impl->allocate(options));
  device.set_listener(std::move(on_complete));
  return std::unique_ptr<ForwardExecutor>(new ForwardExecutor(std::move(impl)));
}

ForwardExecutor::ForwardExecutor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ForwardExecutor::~ForwardExecutor() = default;

const ExecutorLimits& ForwardExecutor::limits() const { return impl_->limits(); }
void ForwardExecutor::launch(const StepInput& input) { impl_->launch(input); }
std::optional<StepResult> ForwardExecutor::poll() { return impl_->poll(); }

void ForwardExecutor::leave(SequenceId offloaded) {
  CHECK(false, "sequence {} leaves, but there is one tier only", raw(offloaded));
}

TierEvents ForwardExecutor::take_tier_events() { return {}; }
void ForwardExecutor::set_keep_logits(bool keep) { impl_->keep_logits(keep); }
const std::vector<float>& ForwardExecutor::kept_logits() const { return impl_->kept_logits(); }

}  // namespace tandem
