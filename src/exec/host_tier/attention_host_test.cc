// An executor whose attention host is not threads but an object in virtual time: the same bits, and
// times that no thread and no real clock can change.
#include "piggyback/attention_host.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/kernels.h"
#include "kernels/routed_row.h"
#include "piggyback/workers/aligned_buffer.h"
#include "support/random_model.h"
#include "support/step_driver.h"

namespace tandem {
namespace {

using piggyback::AnswerListener;
using piggyback::AttentionHostCounts;
using piggyback::AttentionSpec;
using piggyback::HopAnswer;
using piggyback::HopId;
using piggyback::HopTask;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int32_t kLayers = 3;
constexpr Nanos kHopTime = milliseconds(5);

struct VirtualHostOptions {
  int32_t hanging_attempts = 0;  // of each hop are answered only when they are withdrawn
};

// Attends on the caller's thread and answers kHopTime of the clock later.
class VirtualHost final : public piggyback::AttentionHost {
 public:
  VirtualHost(const AttentionSpec& spec, const VirtualHostOptions& options, const Clock& clock)
      : spec_(spec), options_(options), clock_(clock) {
    const Result<const kernels::Kernels*> table =
        kernels::kernels_for(kernels::available_isas().back());
    CHECK(table.ok(), "{}", table.error().message);
    kernels_ = *table;
  }

  void submit(std::span<const HopTask> tasks) override {
    for (const HopTask& task : tasks) {
      const bool hangs = task.attempt < options_.hanging_attempts;
      sequences_.insert(task.sequence);
      if (!hangs) {
        attend(task);
      }
      open_.push_back({.answer = {.hop = task.hop,
                                  .attempt = task.attempt,
                                  .began = clock_.now(),
                                  .ended = clock_.now() + kHopTime},
                       .hangs = hangs,
                       .block_table = task.block_table});
    }
  }

  void take_answers(std::vector<HopAnswer>& answers) override {
    if (on_take_) {
      on_take_();
    }
    const auto ready = [&](const Open& open) {
      return !open.hangs && open.answer.ended <= clock_.now();
    };
    for (const Open& open : open_) {
      if (ready(open)) {
        answers.push_back(open.answer);
        ++counts_.tasks;
      }
    }
    std::erase_if(open_, ready);
  }

  void withdraw(HopId hop, int32_t attempt) override {
    for (Open& open : open_) {
      if (open.answer.hop == hop && open.answer.attempt == attempt) {
        open = {.answer = {.hop = hop, .attempt = attempt, .failed = true},
                .hangs = false,
                .block_table = open.block_table};
      }
    }
  }

  void set_listener(AnswerListener listener) override { listener_ = std::move(listener); }
  [[nodiscard]] AttentionHostCounts counts() const override { return counts_; }
  [[nodiscard]] int64_t waiting() const override { return std::ssize(open_); }

  // When the owner should be called next, and the call.
  [[nodiscard]] std::optional<Nanos> next_answer() const {
    std::optional<Nanos> next;
    for (const Open& open : open_) {
      if (!open.hangs) {
        next = std::min(next.value_or(open.answer.ended), open.answer.ended);
      }
    }
    return next;
  }
  void call_owner() { listener_({.at = clock_.now()}); }

  // `on_take` is called whenever answers are taken.
  void watch(std::function<void()> on_take) { on_take_ = std::move(on_take); }
  // First blocks of the tasks that are not answered, read as a late worker reads them.
  [[nodiscard]] std::vector<int32_t> open_blocks() const {
    std::vector<int32_t> blocks;
    for (const Open& open : open_) {
      blocks.push_back(open.block_table[0]);
    }
    return blocks;
  }
  // The sequences of all tasks that were submitted.
  [[nodiscard]] const std::set<SequenceId>& sequences() const { return sequences_; }

 private:
  struct Open {
    HopAnswer answer;
    bool hangs = false;
    const int32_t* block_table = nullptr;
  };

  void attend(const HopTask& task) {
    const std::byte* routed = spec_.routed + task.hop_row * spec_.routed_row_bytes;
    const int32_t block_tokens = spec_.layout.block_tokens;
    kernels::KvAppendArgs append;
    append.routed = routed;
    append.heads = spec_.heads;
    append.layout = spec_.layout;
    append.layer = task.layer;
    append.block = task.block_table[task.position / block_tokens];
    append.slot = task.position % block_tokens;
    append.kv = spec_.kv;
    kernels_->kv_append(append, 0, spec_.layout.kv_heads);
    const kernels::AttentionSlice slice{0, 1, task.position, task.block_table};
    kernels::AttentionArgs args;
    args.q = reinterpret_cast<const float*>(routed);
    args.kv = spec_.kv;
    args.layout = spec_.layout;
    args.layer = task.layer;
    args.heads = spec_.heads;
    args.scale = spec_.scale;
    args.window = spec_.windows[static_cast<size_t>(task.layer)];
    args.slices = &slice;
    args.slice_count = 1;
    args.out = spec_.results + task.hop_row * spec_.result_row_bytes;
    args.out_stride = int64_t{spec_.heads} * spec_.layout.padded_head_dim;
    args.out_type = spec_.result_type;
    kernels::AttentionPlan plan;
    kernels::plan_attention(args, 1, plan);
    kernels_->attend(args, plan.tasks, scratch_.require(kernels_->attend_scratch_bytes(args)));
  }

  const AttentionSpec spec_;
  const VirtualHostOptions options_;
  const Clock& clock_;
  const kernels::Kernels* kernels_ = nullptr;
  piggyback::AlignedBuffer scratch_;
  std::vector<Open> open_;
  std::set<SequenceId> sequences_;
  std::function<void()> on_take_;
  AnswerListener listener_;
  AttentionHostCounts counts_;
};

std::vector<TokenId> prompt() {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < 70; ++i) {
    tokens.push_back((3 + 7 * i) % 75);
  }
  return tokens;
}

// One sequence that decodes on a virtual host.
class World {
 public:
  World(const reference::Model& model, const VirtualHostOptions& host, Nanos patience) {
    reference::RigOptions options{
        .type = ElementType::kBF16, .two_tier_memory_bytes = int64_t{64} << 20, .host_blocks = 64};
    options.host = {.sequences = 4,
                    .threads = 1,
                    .hop_patience = patience,
                    .clock = &clock_,
                    .binder = &binder_,
                    .attention = [this, host](const AttentionSpec& spec)
                        -> Result<std::unique_ptr<piggyback::AttentionHost>> {
                      auto made = std::make_unique<VirtualHost>(spec, host, clock_);
                      host_ = made.get();
                      return std::unique_ptr<piggyback::AttentionHost>(std::move(made));
                    }};
    rig_ = reference::make_rig(model, options);
    reference::SequenceMaker maker(rig_.executor->limits());
    sequence_ = maker.make(prompt(), 120);
    reference::prefill(*rig_.executor, sequence_, 64);
    offload();
  }

  // Decodes a token on the host; returns the logits behind it.
  std::vector<float> decode() {
    StepInput input;
    input.entering.push_back(
        {.sequence = sequence_.id,
         .token = sequence_.tokens.back(),
         .position = sequence_.computed_tokens,
         .host_table = sequence_.blocks,
         .sample = {.sequence = sequence_.id,
                    .params = &sequence_.params,
                    .seed = sequence_.seed,
                    .position = static_cast<int64_t>(sequence_.tokens.size())}});
    StepResult result;
    while (result.visitors.empty()) {
      result = run(input);
      input.entering.clear();
    }
    sequence_.tokens.push_back(result.visitors.front().token);
    ++sequence_.computed_tokens;
    return rig_.executor->kept_logits();
  }

  // Each look for answers takes a second.
  Result<Nanos> time_attention(int32_t rows, int32_t context) {
    host_->watch([this] { clock_.set(clock_.now() + seconds(1)); });
    return rig_.executor->time_host_attention(rows, context);
  }

  ForwardExecutor& executor() { return *rig_.executor; }
  VirtualHost& host() { return *host_; }
  [[nodiscard]] Nanos now() const { return clock_.now(); }

 private:
  // Time passes only while the step waits for the host.
  StepResult run(const StepInput& input) {
    rig_.executor->launch(input);
    StepResult result;
    while (!rig_.executor->poll(result)) {
      if (host_->waiting() == 0) {
        std::this_thread::yield();
        continue;
      }
      clock_.set(host_->next_answer().value_or(clock_.now() + milliseconds(100)));
      host_->call_owner();
    }
    return result;
  }

  void offload() {
    StepInput input;
    TierTransfer transfer{.id = 1, .kind = TransferKind::kOffload, .blocks = {}};
    for (const BlockId block : sequence_.blocks) {
      transfer.blocks.push_back({block, block});
    }
    input.transfers.push_back(transfer);
    run(input);
    while (rig_.executor->take_tier_events().transfers_done.empty()) {
      std::this_thread::yield();
    }
  }

  ManualClock clock_;
  reference::AllBinder binder_;
  VirtualHost* host_ = nullptr;  // the executor's
  reference::Rig rig_;
  reference::Sequence sequence_;
};

constexpr int32_t kTokens = 6;

std::vector<float> plain_logits(const reference::Model& model) {
  const reference::Rig rig = reference::make_rig(model, {.type = ElementType::kBF16, .threads = 1});
  reference::SequenceMaker maker(rig.executor->limits());
  reference::Sequence sequence = maker.make(prompt(), 120);
  reference::prefill(*rig.executor, sequence, 64);
  return reference::decode(*rig.executor, sequence, kTokens);
}

TEST(AttentionHost, InVirtualTimeTakesItsTimeExactlyAndGivesThePlainBits) {
  const reference::Model model =
      reference::make_model(reference::small_config(), ElementType::kBF16, 3);
  World world(model, {}, seconds(60));
  std::vector<float> logits;
  for (int32_t i = 0; i < kTokens; ++i) {
    const Nanos began = world.now();
    const std::vector<float> row = world.decode();
    logits.insert(logits.end(), row.begin(), row.end());
    EXPECT_EQ(world.now() - began, kLayers * kHopTime);
  }
  EXPECT_EQ(logits, plain_logits(model));
  const TierCounts counts = world.executor().tier_counts();
  EXPECT_EQ(counts.hops, kTokens * kLayers);
  EXPECT_EQ(counts.visits, kTokens * (kLayers + 1));
  EXPECT_EQ(counts.doubted, 0);
}

TEST(AttentionHost, AnAttemptThatHangsIsWithdrawnAndTriedAgainInVirtualTime) {
  const reference::Model model =
      reference::make_model(reference::small_config(), ElementType::kBF16, 3);
  World world(model, {.hanging_attempts = 1}, seconds(2));
  std::vector<float> logits;
  for (int32_t i = 0; i < kTokens; ++i) {
    const Nanos began = world.now();
    const std::vector<float> row = world.decode();
    logits.insert(logits.end(), row.begin(), row.end());
    const Nanos took = world.now() - began;
    EXPECT_GE(took, kLayers * (seconds(2) + kHopTime));
    EXPECT_LE(took, kLayers * (seconds(3) + kHopTime)) << "it is looked for 4 times a patience";
  }
  EXPECT_EQ(logits, plain_logits(model));
  EXPECT_EQ(world.executor().tier_counts().doubted, kTokens * kLayers);
}

TEST(AttentionHost, WhatAWorkerMayStillReadOutlivesAProbeThatGaveUp) {
  const reference::Model model =
      reference::make_model(reference::small_config(), ElementType::kBF16, 3);
  World world(model, {.hanging_attempts = 1}, seconds(2));
  const Result<Nanos> took = world.time_attention(2, 40);
  ASSERT_FALSE(took.ok());
  EXPECT_NE(took.error().message.find("0 of 1 rows"), std::string::npos) << took.error().message;
  EXPECT_EQ(world.host().open_blocks(), std::vector<int32_t>{0});
}

// Hosts place KV by sequences: a row that shared another row's would share its host.
TEST(AttentionHost, RowsOfAProbeAreSequencesOfTheirOwn) {
  const reference::Model model =
      reference::make_model(reference::small_config(), ElementType::kBF16, 3);
  World world(model, {}, seconds(60));
  ASSERT_TRUE(world.time_attention(2, 40).ok());
  EXPECT_EQ(world.host().sequences().size(), 2U);
}

}  // namespace
}  // namespace tandem
