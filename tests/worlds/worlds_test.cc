// Every policy in random worlds of virtual time: both classes, several choices, common prefixes,
// tight pools, targets, cancels and failures, on one tier and on two. Every request ends once, with
// the text that it would have on an idle server; the engine's books are right after each advance;
// when all have ended nothing has stayed behind.
//
// scripts/worlds.sh runs more of them, and one again. Environment: TANDEM_WORLDS_FIRST (1), the
// first seed; TANDEM_WORLDS_COUNT (500), how many of each policy.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "scheduler/policies/registry.h"
#include "support/random_world.h"

namespace tandem {
namespace {

using testing::random_world;
using testing::RandomWorld;
using testing::VirtualWorld;
using testing::WorldKind;

// How to run the world again in which the process dies, by a failed CHECK or because it does not
// come to an end.
std::array<char, 256> last_words{};

constexpr int kWorldSeconds = 20;  // of processor time; a world takes a thousandth of one

void say_last_words(int signal) {
  const std::string_view words(last_words.data());
  if (signal == SIGVTALRM) {
    constexpr std::string_view kEndless = "a random world does not come to an end\n";
    static_cast<void>(!::write(STDERR_FILENO, kEndless.data(), kEndless.size()));
  }
  static_cast<void>(!::write(STDERR_FILENO, words.data(), words.size()));
  std::signal(SIGABRT, SIG_DFL);
  std::abort();
}

class Watch {
 public:
  explicit Watch(const std::string& words) {
    last_words.fill(0);
    words.copy(last_words.data(), last_words.size() - 1);
    set_timer(kWorldSeconds);
    std::signal(SIGABRT, say_last_words);
    std::signal(SIGVTALRM, say_last_words);
  }
  ~Watch() {
    set_timer(0);
    std::signal(SIGABRT, SIG_DFL);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  static void set_timer(int seconds) {
    itimerval timer{};
    timer.it_value.tv_sec = seconds;
    setitimer(ITIMER_VIRTUAL, &timer, nullptr);
  }
};

// Looks at every plan of a policy.
class PlanWatch final : public StepPolicy {
 public:
  explicit PlanWatch(StepPolicy& policy)
      : policy_(policy), has_classes_(policy.make_queue_order()->classes_first()) {}
  [[nodiscard]] std::string_view name() const override { return policy_.name(); }
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override {
    return policy_.make_queue_order();
  }
  [[nodiscard]] bool reads_stages() const override { return policy_.reads_stages(); }

  StepPlan plan(const SystemView& view) override {
    StepPlan plan = policy_.plan(view);
    if (has_classes_) {
      keeps_latency_sensitive(view, plan);
    }
    return plan;
  }

 private:
  // A latency-sensitive sequence is dropped only where no best-effort one has blocks to lose.
  static void keeps_latency_sensitive(const SystemView& view, const StepPlan& plan) {
    const auto is_in = [](const std::vector<SequenceId>& list, const SequenceView& sequence) {
      return std::ranges::find(list, sequence.id) != list.end();
    };
    const bool drops = std::ranges::any_of(view.running, [&](const SequenceView& sequence) {
      return sequence.service_class == ServiceClass::kLatencySensitive &&
             is_in(plan.preempt, sequence);
    });
    for (const SequenceView& sequence : view.running) {
      const bool stays = !is_in(plan.preempt, sequence) && !is_in(plan.offload, sequence);
      CHECK(!drops || !stays || sequence.own_blocks == 0 ||
                sequence.service_class == ServiceClass::kLatencySensitive,
            "step {}: best-effort sequence {} keeps {} blocks while a latency-sensitive one is "
            "dropped",
            view.step, raw(sequence.id), sequence.own_blocks);
    }
  }

  StepPolicy& policy_;
  const bool has_classes_;
};

uint64_t number_from(const char* variable, uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

struct Totals {
  int64_t preemptions = 0;
  int64_t transfers = 0;
  int64_t tokens_on_host = 0;
};

// False: something is wrong, and said.
bool play(const std::string& policy, uint64_t seed, Totals& totals) {
  const std::string again =
      fmt::format("again: scripts/worlds.sh --policy {} --seeds {} 1\n", policy, seed);
  const Watch watch(again);
  RandomWorld world = random_world(policy, seed);
  world.options.watch_policy = [](StepPolicy& inner) { return std::make_unique<PlanWatch>(inner); };
  VirtualWorld played(world.options);
  world.send_to(played);
  played.run_until_idle();
  const std::string wrong = wrong_in(world, played);
  EXPECT_EQ(wrong, "") << policy << ", seed " << seed << "; " << again;
  totals.preemptions += played.preemptions();
  totals.transfers += played.executor().host().transfers();
  totals.tokens_on_host += played.executor().host().entered();
  return wrong.empty();
}

std::vector<std::string> policies() {
  const std::vector<std::string_view> names = policy_names();
  return {names.begin(), names.end()};
}

class RandomWorlds : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Policies, RandomWorlds, ::testing::ValuesIn(policies()),
                         [](const auto& test) { return test.param; });

TEST_P(RandomWorlds, AreAnsweredAsIfEachRequestWereAlone) {
  const uint64_t first = number_from("TANDEM_WORLDS_FIRST", 1);
  const uint64_t count = number_from("TANDEM_WORLDS_COUNT", 500);
  Totals totals;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    if (!play(GetParam(), seed, totals)) {
      return;
    }
  }
  if (count >= 100) {  // the worlds are tight enough to show something
    EXPECT_GT(totals.preemptions, static_cast<int64_t>(count));
  }
  const std::string& policy = GetParam();
  if (count >= 100 && policy_traits(policy).tiers == PolicyTiers::kBoth) {
    EXPECT_GT(totals.transfers, static_cast<int64_t>(count));
    EXPECT_GT(totals.tokens_on_host, static_cast<int64_t>(count));
  }
}

}  // namespace
}  // namespace tandem
