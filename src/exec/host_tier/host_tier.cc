#include "exec/host_tier/host_tier.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "exec/host_tier/local_attention.h"
#include "exec/workspaces.h"

namespace tandem {
namespace {

int64_t bytes_of_a_token(const kernels::KvLayout& layout) {
  return layout.block_bytes() / (int64_t{layout.layers} * layout.block_tokens);
}

size_t max_table_blocks(const model::ModelConfig& config, const ExecutorOptions& options) {
  const int32_t block_tokens = kv_layout_for(config, options).block_tokens;
  return static_cast<size_t>((longest_context(config, options) + block_tokens - 1) / block_tokens);
}

std::vector<observe::Track*> worker_tracks(const ExecutorOptions& options) {
  std::vector<observe::Track*> tracks;
  for (int32_t i = 0; options.host.timeline != nullptr && i < options.host.threads; ++i) {
    tracks.push_back(
        &options.host.timeline->add_track("host workers", fmt::format("worker {}", i)));
  }
  return tracks;
}

bool any(const TierEvents& events) {
  return !events.transfers_done.empty() || !events.left.empty() || !events.failed.empty() ||
         !events.lost_blocks.empty() || !events.found_blocks.empty();
}

}  // namespace

Result<std::unique_ptr<HostTier>> HostTier::create(const Environment& environment) {
  const ExecutorOptions& options = environment.options;
  const kernels::KvLayout layout = kv_layout_for(environment.config, options);
  const HostTierSizes sizes = host_tier_sizes(environment.config, environment.weights, options);
  ASSIGN_OR_RETURN(HopMemory memory, HopMemory::allocate(environment.device, sizes));
  std::unique_ptr<HostTier> tier(new HostTier(environment, std::move(memory)));
  tier->transfers_ = std::make_unique<Transfers>(
      environment.device,
      KvPools{.device = environment.device_kv,
              .host = tier->memory_.host->kv->data(),
              .layout = layout,
              .device_bytes = total_blocks(layout, options) * layout.block_bytes()});
  if (sizes.staging_layers > 0) {
    ASSIGN_OR_RETURN(tier->staging_,
                     StagingLayers::create(environment.device, *tier->notifier_,
                                           tier->transfers_->pools(), sizes.staging_layers));
  }
  RETURN_IF_ERROR(tier->start_attention(environment));
  tier->carrier_ =
      std::make_unique<HopCarrier>(HopCarrier::Parts{.device = environment.device,
                                                     .clock = tier->clock_,
                                                     .notifier = *tier->notifier_,
                                                     .core = tier->core_,
                                                     .tokens = tier->tokens_,
                                                     .memory = tier->memory_,
                                                     .attention = *tier->attention_},
                                   HopCarrier::Options{.hop_patience = options.host.hop_patience,
                                                       .group_stages = options.host.group_stages,
                                                       .block_tokens = layout.block_tokens,
                                                       .worker_tracks = worker_tracks(options)});
  return tier;
}

HostTier::HostTier(const Environment& environment, HopMemory memory)
    : device_(environment.device),
      clock_(*environment.options.host.clock),
      notifier_(environment.notifier),
      block_tokens_(kv_layout_for(environment.config, environment.options).block_tokens),
      threads_(environment.options.host.threads),
      token_bytes_(bytes_of_a_token(kv_layout_for(environment.config, environment.options))),
      memory_(std::move(memory)),
      core_(hop_limits(environment.config, environment.options)),
      tokens_(memory_.host, max_table_blocks(environment.config, environment.options)),
      queues_(core_) {}

Status HostTier::start_attention(const Environment& environment) {
  const piggyback::AttentionSpec spec =
      attention_spec(environment.config, environment.weights, environment.options, memory_);
  if (const auto& make = environment.options.host.attention; make) {
    ASSIGN_OR_RETURN(attention_, make(spec));
  } else {
    ASSIGN_OR_RETURN(std::unique_ptr<piggyback::AttentionWorkers> workers,
                     start_attention_workers(spec, environment.config, environment.options, device_,
                                             *memory_.host));
    workers_ = workers.get();
    attention_ = std::move(workers);
  }
  attention_->set_listener([notifier = notifier_](const piggyback::AnswerNotice& notice) {
    notifier->answered(notice);
  });
  return {};
}

HostTier::~HostTier() {
  if (attention_ != nullptr) {
    attention_->set_listener(nullptr);
  }
}

void HostTier::place(StageBuffers& buffers) const {
  buffers.ring = memory_.ring->data();
  buffers.returns = memory_.returns->data();
  buffers.residual_store = memory_.residual_store->data();
  buffers.staging_layers = staging_ == nullptr ? nullptr : staging_->data();
}

void HostTier::enter(const OffloadedToken& token) {
  if (!std::exchange(worked_, true)) {
    taken_ = attention_->counts();
  }
  tokens_.enter(token);
  const bool entered =
      core_.enter(token.sequence, token.token, token.position, clock_.now(), token.lane);
  CHECK(entered, "sequence {} is offloaded beyond the {} that may be", raw(token.sequence),
        core_.limits().slots);
}

// The token may have failed on the host since the step was planned, which is reported.
void HostTier::move_lane(const LaneMove& move) {
  static_cast<void>(core_.move_lane(move.sequence, move.lane));
}

void HostTier::leave(SequenceId sequence) {
  if (core_.leave(sequence)) {
    gather_events();
    return;
  }
  events_.left.push_back(sequence);  // it never entered: nothing is under way
  notifier_->ring();
}

void HostTier::pump() {
  notifier_->polled();
  carrier_->pump();
  gather_events();
}

// Not every event comes with a completion of the device or an answer of the host: a sequence that
// leaves with nothing in flight has left at once. So the owner is called here.
void HostTier::gather_events() {
  const bool had_any = any(events_);
  transfers_->take_done(events_.transfers_done);
  core_.take_failed(events_.failed);
  core_.take_left(events_.left);
  carrier_->take_events(events_);
  if (any(events_) && !had_any) {
    notifier_->ring();
  }
}

bool HostTier::has_events() const { return any(events_); }

TierEvents HostTier::take_events() {
  pump();
  for (const SequenceId sequence : events_.failed) {
    tokens_.erase(sequence);
  }
  for (const SequenceId sequence : events_.left) {
    tokens_.erase(sequence);
  }
  return std::exchange(events_, {});
}

TierCounts HostTier::counts() const {
  TierCounts counts;
  carrier_->add_counts(counts);
  counts.visits = queues_.visits();
  counts.offloaded_bytes =
      transfers_->offloaded_bytes() + (staging_ == nullptr ? 0 : staging_->copied_bytes());
  counts.onloaded_bytes = transfers_->onloaded_bytes();
  counts.workers = threads_;
  counts.layers = core_.limits().last_stage;
  counts.attended_token_bytes = token_bytes_;
  return counts;
}

HostWork HostTier::take_work() {
  if (!worked_) {
    return {};
  }
  worked_ = !tokens_.empty();
  const piggyback::AttentionHostCounts before = std::exchange(taken_, attention_->counts());
  return {.busy = (taken_.busy - before.busy) / std::max(threads_, 1),
          .rows = taken_.tasks - before.tasks,
          .context = (taken_.bytes - before.bytes) / token_bytes_};
}

piggyback::AttentionWorkers& HostTier::workers() {
  CHECK(workers_ != nullptr, "the attention host is not threads of this process");
  return *workers_;
}

HostProbe HostTier::make_probe() {
  return {{.device = device_,
           .clock = clock_,
           .core = core_,
           .memory = memory_,
           .pools = transfers_->pools(),
           .attention = *attention_},
          block_tokens_,
          static_cast<int64_t>(tokens_.max_table_blocks())};
}

}  // namespace tandem
