// A sequence computes the same bits wherever its KV lies: plain and offloaded, with changes of tier
// between tokens, in any company, with any visitors per stage and any size of groups; and whether
// its prompt was computed or the beginning of it copied from the host.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "support/random_model.h"
#include "support/step_driver.h"

namespace tandem {
namespace {

using reference::decode;
using reference::make_model;
using reference::make_rig;
using reference::prefill;
using reference::Rig;
using reference::RigOptions;
using reference::Sequence;
using reference::SequenceMaker;

model::ModelConfig small_config(int32_t layers) {
  model::ModelConfig config;
  config.layers = layers;
  config.hidden = 40;
  config.intermediate = 52;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.vocabulary = 75;
  config.max_positions = 1024;
  config.rms_epsilon = 1e-5F;
  config.tied_embeddings = true;
  return config;
}

model::ModelConfig normed_window_config() {
  model::ModelConfig config = small_config(4);
  config.architecture = model::Architecture::kQwen3;
  config.head_dim = 34;
  config.heads = 4;
  config.qk_norm = true;
  config.windows = {20, 300, 0, 20};
  return config;
}

// Lets a random number join, at least one in all where somebody could.
class RandomBinder final : public Binder {
 public:
  explicit RandomBinder(uint32_t seed) : random_(seed) {}
  void bind(const BindView& view, BindDecision& decision) override {
    if (view.mode == StepMode::kLanes && view.coming.front() > 0 && random_() % 4 != 0) {
      decision.wait = true;  // until something has changed
      return;
    }
    decision.visitors.assign(view.ready.size(), 0);
    for (size_t i = 0; i < view.ready.size(); ++i) {
      std::uniform_int_distribution<int32_t> some(0, view.ready[i]);
      decision.visitors[i] = some(random_);
    }
    if (view.resident_rows == 0) {
      decision.visitors.front() = std::max(decision.visitors.front(), 1);
    }
  }

 private:
  std::mt19937 random_;
};

enum class Place {
  kWaiting,   // for the prefix that it shares to be on the host
  kFetching,  // the prefix is on its way to blocks of its own
  kPrompt,    // the rest of the prompt is computed
  kResident,
  kOffloading,
  kHost,
  kUnderWay,
  kOnloading
};

struct Guest {
  Sequence sequence;
  std::vector<BlockId> host_blocks;
  Place place = Place::kResident;
  std::vector<float> logits;  // of all rows after the prompt's
  int32_t changes = 0;
  int32_t stage = 0;         // of its token under way, when it was seen last
  int32_t lane = 0;          // of the same
  size_t shares_with = 0;    // index of the guest whose prompt begins like this one
  size_t shared_blocks = 0;  // full ones; 0: none, the prompt is computed already
};

// Of a schedule, beside the changes of tier that all schedules make.
struct Habits {
  bool switches = false;       // of mode, in every step; else at random
  bool one_lane = false;       // all tokens on the host are in the second one
  bool moves = false;          // tokens under way change lanes
  bool cancels = false;        // sequences leave the host in the middle of a token
  bool chunks_of_one = false;  // of prompts
};

struct Happened {
  std::set<std::pair<int32_t, int32_t>> cancelled;  // lane and stage of tokens
  int64_t moved = 0;                                // tokens, from lane to lane
};

// Drives sequences through an executor with two tiers at random: each stays, is offloaded, decodes
// on the host and comes back as dice say.
class Schedule {
 public:
  Schedule(ForwardExecutor& executor, int32_t vocabulary, uint32_t seed, const Habits& habits = {})
      : executor_(executor), vocabulary_(vocabulary), habits_(habits), random_(seed) {}

  void add(Sequence sequence) {
    Guest& guest = guests_.emplace_back();
    guest.sequence = std::move(sequence);
    for (size_t i = 0; i < guest.sequence.blocks.size(); ++i) {
      guest.host_blocks.push_back(static_cast<BlockId>(next_host_block_++));
    }
  }

  // Its prompt is not computed; the first blocks of it are those of that guest.
  void add_sharing(Sequence sequence, size_t with, size_t blocks) {
    add(std::move(sequence));
    guests_.back().place = Place::kWaiting;
    guests_.back().shares_with = with;
    guests_.back().shared_blocks = blocks;
  }

  // Until every sequence has `tokens` more than the one that follows its prompt.
  void run(size_t tokens) {
    for (Guest& guest : guests_) {
      wanted_.push_back(static_cast<size_t>(guest.sequence.prompt_tokens) + 1 + tokens);
    }
    for (int step = 1; !done(); ++step) {
      ASSERT_LT(step, 20000) << "the schedule does not end";
      one_step(step);
    }
  }

  std::deque<Guest>& guests() { return guests_; }
  [[nodiscard]] const Happened& happened() const { return happened_; }

 private:
  bool wants(const Guest& guest) const {
    return guest.sequence.tokens.size() < wanted_[static_cast<size_t>(guest.sequence.id) - 1];
  }
  bool done() const {
    return std::none_of(guests_.begin(), guests_.end(),
                        [&](const Guest& guest) { return wants(guest); });
  }
  bool dice(int of) { return std::uniform_int_distribution<int>(1, of)(random_) == 1; }
  Guest& guest_of(SequenceId id) { return guests_[static_cast<size_t>(id) - 1]; }

  SampleSpec sample_of(Guest& guest) const {
    return {.sequence = guest.sequence.id,
            .params = &guest.sequence.params,
            .seed = guest.sequence.seed,
            .position = static_cast<int64_t>(guest.sequence.tokens.size())};
  }

  void transfer(Guest& guest, TransferKind kind, StepInput& input) {
    TierTransfer transfer{.id = ++transfers_, .kind = kind, .blocks = {}};
    for (size_t i = 0; i < guest.host_blocks.size(); ++i) {
      transfer.blocks.push_back({guest.sequence.blocks[i], guest.host_blocks[i]});
    }
    by_transfer_[transfer.id] = guest.sequence.id;
    input.transfers.push_back(std::move(transfer));
    ++guest.changes;
  }

  void slice(Guest& guest, int32_t tokens, StepInput& input) {
    const auto known = static_cast<int32_t>(guest.sequence.tokens.size());
    const int32_t first = guest.sequence.computed_tokens;
    const bool samples = first + tokens == known;
    specs_.push_back(sample_of(guest));
    input.slices.push_back(
        {.sequence = guest.sequence.id,
         .tokens = std::span<const TokenId>(guest.sequence.tokens)
                       .subspan(static_cast<size_t>(first), static_cast<size_t>(tokens)),
         .first_position = first,
         .block_table = guest.sequence.blocks,
         .samples = std::span<const SampleSpec>(&specs_.back(), samples ? 1 : 0)});
  }

  void plan_prompt(Guest& guest, StepInput& input) {
    const Guest& other = guests_[guest.shares_with];
    if (guest.place == Place::kWaiting &&
        (other.place == Place::kHost || other.place == Place::kUnderWay)) {
      TierTransfer fetch{.id = ++transfers_, .kind = TransferKind::kOnload, .blocks = {}};
      for (size_t i = 0; i < guest.shared_blocks; ++i) {
        fetch.blocks.push_back({guest.sequence.blocks[i], other.host_blocks[i]});
      }
      by_transfer_[fetch.id] = guest.sequence.id;
      input.transfers.push_back(std::move(fetch));
      guest.place = Place::kFetching;
    } else if (guest.place == Place::kPrompt) {
      const auto left =
          static_cast<int32_t>(guest.sequence.prompt_tokens) - guest.sequence.computed_tokens;
      const int32_t tokens =
          std::uniform_int_distribution<int32_t>(1, habits_.chunks_of_one ? 1 : left)(random_);
      slice(guest, tokens, input);
      guest.sequence.computed_tokens += tokens;
    }
  }

  void plan_under_way(Guest& guest, StepInput& input) {
    if (habits_.cancels && dice(10)) {
      happened_.cancelled.emplace(guest.lane, guest.stage);
      executor_.leave(guest.sequence.id);
      guest.place = Place::kOnloading;  // where the token is computed again
    } else if (habits_.moves && dice(2)) {
      const int32_t lane = dice(2) ? 1 : 0;
      happened_.moved += lane != guest.lane ? 1 : 0;
      guest.lane = lane;
      input.lane_moves.push_back({.sequence = guest.sequence.id, .lane = lane});
    }
  }

  void plan(Guest& guest, StepInput& input) {
    if (guest.place == Place::kWaiting || guest.place == Place::kPrompt) {
      plan_prompt(guest, input);
    } else if (guest.place == Place::kResident && dice(4)) {
      transfer(guest, TransferKind::kOffload, input);
      guest.place = Place::kOffloading;
    } else if (guest.place == Place::kHost && dice(6)) {
      executor_.leave(guest.sequence.id);
      guest.place = Place::kOnloading;  // the copy begins when it has left
    } else if (guest.place == Place::kUnderWay) {
      plan_under_way(guest, input);
    } else if (guest.place == Place::kHost && wants(guest)) {
      guest.lane = habits_.one_lane || dice(2) ? 1 : 0;
      input.entering.push_back({.sequence = guest.sequence.id,
                                .token = guest.sequence.tokens.back(),
                                .position = guest.sequence.computed_tokens,
                                .lane = guest.lane,
                                .host_table = guest.host_blocks,
                                .sample = sample_of(guest)});
      guest.place = Place::kUnderWay;
    } else if (guest.place == Place::kResident && wants(guest) && dice(2)) {
      slice(guest, 1, input);
    }
  }

  void take(const std::vector<SampledToken>& samples, size_t first_row) {
    const std::vector<float>& logits = executor_.kept_logits();
    for (size_t i = 0; i < samples.size(); ++i) {
      Guest& guest = guest_of(samples[i].sequence);
      if (guest.place == Place::kPrompt) {
        guest.sequence.tokens.push_back(samples[i].token);
        guest.place = Place::kResident;
        continue;
      }
      const auto begin = logits.begin() + static_cast<int64_t>(first_row + i) * vocabulary_;
      guest.logits.insert(guest.logits.end(), begin, begin + vocabulary_);
      guest.sequence.tokens.push_back(samples[i].token);
      ++guest.sequence.computed_tokens;
      if (guest.place == Place::kUnderWay) {
        guest.place = Place::kHost;
      }
    }
  }

  void take_events(StepInput& next) {
    const TierEvents events = executor_.take_tier_events();
    EXPECT_TRUE(events.failed.empty());
    for (const int64_t id : events.transfers_done) {
      Guest& guest = guest_of(by_transfer_.at(id));
      if (guest.place == Place::kFetching) {
        guest.sequence.computed_tokens =
            static_cast<int32_t>(guest.shared_blocks) * executor_.limits().block_tokens;
        guest.place = Place::kPrompt;
        continue;
      }
      guest.place = guest.place == Place::kOffloading ? Place::kHost : Place::kResident;
    }
    for (const SequenceId id : events.left) {
      transfer(guest_of(id), TransferKind::kOnload, next);
    }
  }

  // Between steps a token under way is at some stage, and never goes back.
  void look_at_stage(Guest& guest) const {
    const int32_t stage = executor_.next_stage(guest.sequence.id);
    if (guest.place != Place::kUnderWay) {
      EXPECT_EQ(stage, -1);
      guest.stage = 0;
      return;
    }
    EXPECT_GE(stage, guest.stage);
    EXPECT_LE(stage, executor_.limits().hops_per_token);
    guest.stage = stage;
  }

  void one_step(int step) {
    specs_.clear();
    StepInput input;
    input.step = step;
    const bool has_lanes = habits_.switches ? step % 2 == 0 : dice(2);
    input.mode = has_lanes ? StepMode::kLanes : StepMode::kGroups;
    take_events(input);
    for (Guest& guest : guests_) {
      look_at_stage(guest);
      plan(guest, input);
    }
    executor_.launch(input);
    StepResult result;
    while (!executor_.poll(result)) {
      std::this_thread::yield();
    }
    take(result.samples, 0);
    take(result.visitors, result.samples.size());
  }

  ForwardExecutor& executor_;
  const int32_t vocabulary_;
  const Habits habits_;
  std::mt19937 random_;
  Happened happened_;
  std::deque<Guest> guests_;
  std::vector<size_t> wanted_;
  std::deque<SampleSpec> specs_;
  std::map<int64_t, SequenceId> by_transfer_;
  int64_t transfers_ = 0;
  int32_t next_host_block_ = 0;
};

std::vector<TokenId> random_prompt(size_t count, uint32_t seed, const model::ModelConfig& config) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<TokenId> token(0, config.vocabulary - 1);
  std::vector<TokenId> prompt(count);
  std::ranges::generate(prompt, [&] { return token(random); });
  return prompt;
}

struct RandomCase {
  model::ModelConfig config;
  ElementType type = ElementType::kBF16;
  Quantization quantization = Quantization::kNone;
  int32_t group_stages = 2;
  int32_t workers = 1;
  int32_t rows = 0;  // of ring and hops; 0: as many as are needed
  Habits habits;
};

constexpr int kDecoded = 12;

// The logits of each sequence alone on a plain device.
std::vector<std::vector<float>> plain_logits(const reference::Model& model, const RandomCase& given,
                                             const std::vector<std::vector<TokenId>>& prompts) {
  std::vector<std::vector<float>> logits;
  for (const std::vector<TokenId>& prompt : prompts) {
    const Rig rig =
        make_rig(model, {.type = given.type, .quantization = given.quantization, .threads = 1});
    SequenceMaker maker(rig.executor->limits());
    Sequence sequence = maker.make(prompt, static_cast<int32_t>(prompt.size()) + kDecoded + 1);
    prefill(*rig.executor, sequence, 512);
    logits.push_back(decode(*rig.executor, sequence, kDecoded));
  }
  return logits;
}

Happened compare_with_plain(const RandomCase& one, uint32_t seed) {
  const reference::Model model = make_model(one.config, one.type, 7);
  std::vector<std::vector<TokenId>> prompts;
  for (uint32_t i = 0; i < 6; ++i) {
    prompts.push_back(random_prompt(i == 0 ? 300 : 3 + 17 * i, 100 + i, one.config));
  }
  constexpr std::array<size_t, 3> kSharedBlocks = {8, 3, 1};
  const size_t computed = prompts.size();
  for (const size_t blocks : kSharedBlocks) {
    std::vector<TokenId> prompt = prompts[0];
    prompt.resize(blocks * 32);
    const std::vector<TokenId> rest = random_prompt(1 + 9 * blocks, 200, one.config);
    prompt.insert(prompt.end(), rest.begin(), rest.end());
    prompts.push_back(std::move(prompt));
  }
  SteadyClock clock;
  RandomBinder binder(seed);
  RigOptions options{.type = one.type,
                     .quantization = one.quantization,
                     .blocks = 64,
                     .two_tier_memory_bytes = int64_t{512} << 20,
                     .host_blocks = 64};
  options.host = {.sequences = 9,
                  .ring_rows = one.rows,
                  .hop_rows = one.rows,
                  .threads = one.workers,
                  .group_stages = one.group_stages,
                  .clock = &clock,
                  .binder = &binder};
  const Rig rig = make_rig(model, options);
  SequenceMaker maker(rig.executor->limits());
  Schedule schedule(*rig.executor, one.config.vocabulary, seed, one.habits);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto prompt_tokens = static_cast<int32_t>(prompts[i].size());
    Sequence sequence = maker.make(prompts[i], prompt_tokens + kDecoded + 1);
    if (i >= computed) {
      schedule.add_sharing(std::move(sequence), 0, kSharedBlocks.at(i - computed));
      continue;
    }
    prefill(*rig.executor, sequence, 64);
    schedule.add(std::move(sequence));
  }
  schedule.run(kDecoded);
  const std::vector<std::vector<float>> expected = plain_logits(model, one, prompts);
  int32_t changes = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(schedule.guests()[i].logits, expected[i]) << "sequence " << i;
    changes += schedule.guests()[i].changes;
  }
  EXPECT_GT(changes, 6);
  return schedule.happened();
}

TEST(TwoTiers, LogitsAreThoseOfThePlainPathBitForBit) {
  compare_with_plain({.config = small_config(3)}, 1);
}

TEST(TwoTiers, OfQuantisedWeightsToo) {
  compare_with_plain({.config = small_config(3), .quantization = Quantization::kInt4}, 3);
}

TEST(TwoTiers, OfFloatsToo) {
  compare_with_plain({.config = small_config(3), .type = ElementType::kF32}, 2);
}

TEST(TwoTiers, WithNormsOfHeadsAndWindowsByLayer) {
  compare_with_plain({.config = normed_window_config(), .workers = 2}, 3);
}

TEST(TwoTiers, WithRingsOfOneRow) {
  compare_with_plain({.config = small_config(3), .workers = 2, .rows = 1}, 4);
  compare_with_plain({.config = small_config(4), .group_stages = 1, .rows = 1}, 5);
}

TEST(TwoTiers, WithTokensThatChangeLanesInTheMiddle) {
  for (const bool switches : {false, true}) {
    SCOPED_TRACE(switches);
    int64_t moved = 0;
    for (uint32_t seed = 20; seed < 24; ++seed) {
      const Habits habits{.switches = switches, .moves = true, .chunks_of_one = seed % 2 == 0};
      moved += compare_with_plain({.config = small_config(4), .workers = 2, .habits = habits}, seed)
                   .moved;
    }
    EXPECT_GT(moved, 40);
  }
}

TEST(TwoTiers, WithAllTokensInTheSecondLane) {
  compare_with_plain({.config = small_config(4), .habits = {.one_lane = true}}, 30);
  compare_with_plain({.config = small_config(3),
                      .workers = 2,
                      .rows = 1,
                      .habits = {.switches = true, .one_lane = true, .moves = true}},
                     31);
}

// A sequence leaves the host in the middle of a token, at any stage and in either lane. The token
// is then computed on the accelerator as if it had not begun on the host.
TEST(TwoTiers, CancelledInEachLaneAtEachStage) {
  const int32_t layers = 2;
  std::set<std::pair<int32_t, int32_t>> cancelled;
  for (uint32_t seed = 40; seed < 60 && std::ssize(cancelled) < 2 * (layers + 1); ++seed) {
    SCOPED_TRACE(seed);
    cancelled.merge(compare_with_plain({.config = small_config(layers),
                                        .group_stages = 1,
                                        .workers = 2,
                                        .habits = {.moves = true, .cancels = true}},
                                       seed)
                        .cancelled);
  }
  EXPECT_EQ(std::ssize(cancelled), 2 * (layers + 1));
}

TEST(TwoTiers, WithGroupsOfAnySize) {
  for (const int32_t stages : {1, 3, 4, 100}) {
    compare_with_plain({.config = small_config(5), .group_stages = stages},
                       10 + static_cast<uint32_t>(stages));
  }
}

}  // namespace
}  // namespace tandem
