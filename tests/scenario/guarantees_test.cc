// What docs/omniserve.md guarantees, each in the traffic that makes it hardest to keep: rows,
// places, rows of logits or time are short.
#include <gtest/gtest.h>

#include <numeric>

#include "support/guarantee_watch.h"
#include "support/virtual_world.h"

namespace tandem {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::GuaranteeFindings;
using testing::make_request;
using testing::PolicyWatch;
using testing::VirtualWorld;
using testing::WorldOptions;

constexpr auto kAdmits = WorldOptions::Admits::kYes;

struct Machine {
  Nanos fixed = milliseconds(2);
  Nanos per_row = microseconds(20);
  Nanos per_attended{0};
  int64_t blocks = 8192;
  WorldOptions::Admits admits = WorldOptions::Admits::kNo;
};

WorldOptions options_of(const Machine& machine) {
  WorldOptions options;
  options.policy = "omniserve";
  options.admits = machine.admits;
  options.executor.limits = {.max_batched_tokens = 512,
                             .max_logit_rows = 64,
                             .total_blocks = machine.blocks,
                             .block_tokens = 16,
                             .host_blocks = 0};
  options.executor.step_fixed = machine.fixed;
  options.executor.per_token = machine.per_row;
  options.executor.per_attended = machine.per_attended;
  options.engine.max_running = 64;
  return options;
}

// A world whose requests have different prompts, each step of which is looked at.
class Town {
 public:
  explicit Town(WorldOptions options) : world_(watched(std::move(options))) {}

  int64_t arrive(Nanos at, int32_t prompt_tokens, int32_t output_tokens, ServiceClass service_class,
                 Slo slo = {}, int32_t n = 1) {
    std::vector<TokenId> prompt(static_cast<size_t>(prompt_tokens));
    std::iota(prompt.begin(), prompt.end(), first_ += 100000);
    Request request = make_request(std::move(prompt), output_tokens);
    request.service_class = service_class;
    request.slo = slo;
    request.n = n;
    world_.arrive(at, ++last_, std::move(request));
    arrivals_[last_] = at;
    return last_;
  }
  void run() { world_.run_until_idle(); }
  [[nodiscard]] const testing::Outcome& outcome(int64_t id) { return world_.outcome(id); }
  [[nodiscard]] Nanos ttft(int64_t id) {
    return world_.outcome(id).times.front() - arrivals_.at(id);
  }
  [[nodiscard]] Nanos longest_gap(int64_t id) {
    const std::vector<Nanos>& times = world_.outcome(id).times;
    Nanos longest{0};
    for (size_t i = 1; i < times.size(); ++i) {
      longest = std::max(longest, times[i] - times[i - 1]);
    }
    return longest;
  }
  [[nodiscard]] int64_t refused() {
    return std::ranges::count_if(
        arrivals_, [&](const auto& one) { return world_.outcome(one.first).refused(); });
  }
  GuaranteeFindings found;

 private:
  WorldOptions watched(WorldOptions options) {
    const int32_t patience = options.policy_options[kPatienceSteps];
    options.watch_policy = [this, patience](StepPolicy& inner) {
      return std::make_unique<PolicyWatch>(inner, patience, found);
    };
    return options;
  }

  VirtualWorld world_;
  std::map<int64_t, Nanos> arrivals_;
  int64_t last_ = 0;
  TokenId first_ = 0;
};

void expect_kept(const GuaranteeFindings& found) {
  for (const std::string& what : found.broken) {
    ADD_FAILURE() << what;
  }
}

Slo targets(Nanos ttft, Nanos tpot = Nanos::max()) {
  Slo slo;
  if (ttft < Nanos::max()) {
    slo.ttft = TtftRule{.base = ttft};
  }
  if (tpot < Nanos::max()) {
    slo.tpot = tpot;
  }
  return slo;
}

// Latency-sensitive prompts fill the 512 rows of each step, which take 7.1 ms.
TEST(Guarantees, BestEffortGetsItsRowsBesidePromptsThatFillEveryStep) {
  struct Case {
    Slo slo;
    WorldOptions::Admits admits;
    int32_t budget;
  };
  for (const Case& one :
       {Case{targets(Nanos::max(), milliseconds(20)), kAdmits, 512},
        Case{targets(Nanos::max(), seconds(1)), WorldOptions::Admits::kNo, 512},
        Case{targets(seconds(2)), kAdmits, 256}, Case{{}, WorldOptions::Admits::kNo, 512}}) {
    WorldOptions options = options_of({.per_row = microseconds(10), .admits = one.admits});
    options.policy_options[kPiggybackTokenBudget] = one.budget;
    Town town(std::move(options));
    const int64_t decode = town.arrive(Nanos{0}, 64, 1000, kBe);
    const int64_t late = town.arrive(milliseconds(1500), 64, 50, kBe);
    for (Nanos at = seconds(1); at < seconds(6); at += milliseconds(13)) {
      town.arrive(at, 1024, 2, ServiceClass::kLatencySensitive, one.slo);
    }
    town.run();
    expect_kept(town.found);
    EXPECT_LE(town.longest_gap(decode), 66 * microseconds(7700));
    EXPECT_LE(town.ttft(late), 5 * 66 * microseconds(7700));  // 64 tokens, tile by tile
  }
}

// The latency-sensitive class takes ten of 64 places.
TEST(Guarantees, NoBestEffortRequestKeepsTheOtherClassOut) {
  struct Flex {
    int32_t n;
    int32_t prompt;
    int32_t output;
  };
  for (const Flex& flex : {Flex{64, 100, 16}, Flex{64, 100, 400}, Flex{1, 60000, 16},
                           Flex{1, 30000, 16}, Flex{24, 100, 200}}) {
    Town town(options_of(
        {.fixed = milliseconds(5), .per_attended = Nanos{2}, .blocks = 4096, .admits = kAdmits}));
    int64_t sensitive = 0;
    for (Nanos at{0}; at < seconds(20); at += milliseconds(250)) {
      town.arrive(at, 100, 400, ServiceClass::kLatencySensitive,
                  targets(milliseconds(1000), milliseconds(20)));
      ++sensitive;
    }
    for (int i = 0; i < 5; ++i) {
      town.arrive(seconds(5) + milliseconds(100 * i), flex.prompt, flex.output, kBe, {}, flex.n);
    }
    town.run();
    expect_kept(town.found);
    EXPECT_LE(town.refused() * 100, sensitive) << flex.n << " choices of " << flex.prompt;
  }
}

// Sixteen latency-sensitive decodes hold all places beside four offloaded sequences.
TEST(Guarantees, OffloadedSequencesGetRowsOfLogitsBesideDecodesOnAllPlaces) {
  for (const std::string policy : {"omniserve", "piggyback", "llumnix_cpu"}) {
    WorldOptions options = options_of({.blocks = 2000});
    options.policy = policy;
    options.policy_options[kOffloadBelow] = 100;
    options.policy_options[kOnloadAbove] = 100;
    options.engine.max_running = 16;
    ExecutorLimits& limits = options.executor.limits;
    limits.max_batched_tokens = 256;
    limits.max_logit_rows = 16 + visitor_logit_rows(16);
    limits.host_blocks = 1000;
    limits.offloaded_sequences = 32;
    VirtualWorld world(options);
    TokenId first = 0;
    const auto request = [&](int32_t tokens, int32_t output, ServiceClass service_class) {
      std::vector<TokenId> prompt(static_cast<size_t>(tokens));
      std::iota(prompt.begin(), prompt.end(), first += 1000);
      Request made = make_request(std::move(prompt), output);
      made.service_class = service_class;
      return made;
    };
    for (int64_t id = 1; id <= 4; ++id) {
      world.arrive(Nanos{0}, id, request(64, 200, kBe));
    }
    for (int64_t i = 0; i < 250; ++i) {
      world.arrive(milliseconds(300 + 20 * i), 10 + i,
                   request(30, 200, ServiceClass::kLatencySensitive));
    }
    world.run_until_idle();
    for (int64_t id = 1; id <= 4; ++id) {
      const std::vector<Nanos>& times = world.outcome(id).times;
      for (size_t i = 1; i < times.size(); ++i) {
        ASSERT_LE(times[i] - times[i - 1], milliseconds(600)) << policy << ", token " << i;
      }
    }
  }
}

// Forty decodes leave no time: best effort lives on what it may claim.
TEST(Guarantees, BestEffortPromptsBeginOneAfterAnotherAndAllGoOn) {
  for (const int64_t tpot : {3000, 4000, 6000}) {
    Town town(options_of({.blocks = 8000}));
    for (int i = 0; i < 40; ++i) {
      town.arrive(milliseconds(i), 50, 1500, ServiceClass::kLatencySensitive,
                  targets(Nanos::max(), microseconds(tpot)));
    }
    for (int i = 0; i < 12; ++i) {
      town.arrive(milliseconds(200), 2000, 20, kBe);
    }
    town.run();
    expect_kept(town.found);
    EXPECT_LE(town.found.most_begun, 1);
    EXPECT_LE(town.found.longest_prompt_gap, 64);
    EXPECT_LE(town.found.longest_decode_gap, 64);
  }
}

// The dearest tile of a best-effort prompt takes as long as ten steps.
TEST(Guarantees, PromisedFirstTokensAreInTimeBesideALongBestEffortPrompt) {
  for (const int32_t tokens : {20000, 60000}) {
    Town town(options_of({.per_attended = Nanos{50}, .blocks = 6000, .admits = kAdmits}));
    town.arrive(Nanos{0}, tokens, 4, kBe);
    std::vector<int64_t> sensitive;
    for (Nanos at = seconds(15); at < seconds(25); at += microseconds(21300)) {
      sensitive.push_back(town.arrive(at, 64, 60, ServiceClass::kLatencySensitive,
                                      targets(milliseconds(20), microseconds(3200))));
    }
    town.run();
    expect_kept(town.found);
    int64_t promised = 0;
    for (const int64_t id : sensitive) {
      if (!town.outcome(id).refused()) {
        ++promised;
        EXPECT_LE(town.ttft(id), milliseconds(20)) << tokens;
      }
    }
    EXPECT_GE(promised * 100, std::ssize(sensitive) * 75) << tokens;
  }
}

// A TPOT of a microsecond, long or two tokens every three seconds, beside a flood of best effort.
TEST(Guarantees, OneImpossibleTargetSlowsNothingDown) {
  const auto tokens_beside = [](int32_t output, Nanos every) {
    Town town(options_of({}));
    for (Nanos at{0}; output > 0 && at < seconds(6); at += every) {
      town.arrive(at, 16, output, ServiceClass::kLatencySensitive,
                  targets(Nanos::max(), microseconds(1)));
    }
    std::vector<int64_t> flood;
    for (int i = 0; i < 150; ++i) {
      flood.push_back(town.arrive(Nanos{0}, 500, 64, kBe));
    }
    town.run();
    int64_t tokens = 0;
    for (const int64_t id : flood) {
      tokens +=
          std::ranges::count_if(town.outcome(id).times, [](Nanos at) { return at <= seconds(3); });
    }
    return tokens;
  };
  const int64_t alone = tokens_beside(0, seconds(1));
  EXPECT_GT(alone, 1000);
  EXPECT_GE(tokens_beside(2000, seconds(10)) * 100, alone * 95);
  EXPECT_GE(tokens_beside(2, seconds(3)) * 100, alone * 95);
}

}  // namespace
}  // namespace tandem
