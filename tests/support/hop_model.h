// A discrete-event model of offloaded decode around a HopCore, for tests and for bench/hop_bench:
// how much of N / ((d+1) * T) is reached when rows are bound in groups of so many stages. Virtual
// time; the same options, the same result.
//
// What a real machine varies varies here too: context lengths, the wait of every hop, and every
// token has a chance of 1 % to be its sequence's last, whose place another sequence takes two steps
// later.
//
// The compute stream runs d+1 stages of equal length one after another, step after step, and waits
// for nothing. A group is bound when the last but one before it is complete (of the same step: the
// one before samples first), so one runs and one is queued; a whole step in one group is bound when
// it starts. A hop is a copy out, a turn at the host (one queue, served in order, times spread
// around their mean as context lengths are), and a copy back. A token that has visited the last
// stage is followed by the next one as the next step starts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <queue>
#include <random>
#include <vector>

#include "base/check.h"
#include "piggyback/core/hop_core.h"

namespace tandem::piggyback {

struct HopModelOptions {
  int32_t sequences = 256;
  int32_t layers = 32;
  int32_t group_stages = 4;
  double capacity = 1.25;  // visitors of a stage at most, in sequences / layers
  Nanos step = std::chrono::milliseconds(25);
  Nanos copy = std::chrono::microseconds(60);  // each way
  double host_load = 0.7;       // the host's busy share when every sequence makes a hop a step
  double context_spread = 0.5;  // standard deviation of log service time, by sequence
  Nanos host_latency{0};        // mean of an exponential wait added to each hop
  int32_t warm_up_rounds = 4;   // of d+1 steps
  int32_t rounds = 12;
  uint64_t seed = 1;
};

struct HopModelResult {
  double share = 0;           // of sequences / ((layers + 1) * step)
  double hop_steps = 0;       // mean time of a hop, bind to ready, in steps
  int32_t most_visitors = 0;  // of a stage
};

class HopModel {
 public:
  explicit HopModel(const HopModelOptions& options)
      : options_(options),
        core_({.slots = options.sequences,
               .ring_rows = 4 * options.sequences,
               .hop_rows = 2 * options.sequences,
               .last_stage = options.layers}),
        stages_(options.layers + 1),
        stage_time_(options.step / stages_),
        bound_at_(static_cast<size_t>(options.sequences)),
        random_(options.seed) {
    std::normal_distribution<double> spread(0.0, options.context_spread);
    const double mean = options.host_load * static_cast<double>(options.step.count()) /
                        static_cast<double>(options.sequences);
    double sum = 0;
    for (int32_t i = 0; i < options.sequences; ++i) {
      service_.push_back(std::exp(spread(random_)));
      sum += service_.back();
    }
    for (double& one : service_) {
      one *= mean * options.sequences / sum;
    }
  }

  HopModelResult run() {
    for (int32_t i = 0; i < options_.sequences; ++i) {
      enter(SequenceId{i});
    }
    const int64_t steps = int64_t{stages_} * (options_.warm_up_rounds + options_.rounds);
    for (int64_t step = 0; step < steps; ++step) {
      if (step == int64_t{stages_} * options_.warm_up_rounds) {
        tokens_ = hops_ = 0;
        hop_time_ = Nanos{0};
      }
      run_step(step);
    }
    const double bound = static_cast<double>(options_.rounds) * options_.sequences;
    return {.share = static_cast<double>(tokens_) / bound,
            .hop_steps = to_seconds(hop_time_) / to_seconds(options_.step) /
                         static_cast<double>(std::max<int64_t>(hops_, 1)),
            .most_visitors = most_visitors_};
  }

 private:
  struct Event {
    Nanos at{0};
    int64_t order = 0;
    std::function<void()> happen;
    bool operator>(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  void at(Nanos time, std::function<void()> happen) {
    events_.push({time, order_++, std::move(happen)});
  }

  void go_to(Nanos time) {
    while (!events_.empty() && events_.top().at <= time) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      event.happen();
    }
    now_ = time;
  }

  void enter(SequenceId sequence) {
    CHECK(core_.enter(sequence, 0, 0, now_), "sequence {} does not get in", raw(sequence));
  }

  void run_step(int64_t step) {
    const Nanos begin = options_.step * step;
    go_to(begin);
    for (const SequenceId sequence : sampled_) {
      if (random_() % 100 == 0) {
        at(begin + options_.step * 2, [this, sequence] { enter(sequence); });
      } else {
        enter(sequence);
      }
    }
    sampled_.clear();
    const int32_t group = options_.group_stages;
    for (int32_t first = 0; first < stages_; first += group) {
      go_to(begin + stage_time_ * std::max(0, first - group));
      const int64_t ticket = ++ticket_;
      const int32_t end = std::min(stages_, first + group);
      for (int32_t stage = first; stage < end; ++stage) {
        bind(stage, ticket, begin + stage_time_ * (stage + 1));
      }
      at(begin + stage_time_ * end, [this, ticket] { core_.group_done(ticket); });
    }
  }

  void bind(int32_t stage, int64_t ticket, Nanos stage_end) {
    const auto limit =
        static_cast<int32_t>(std::ceil(options_.capacity * options_.sequences / options_.layers));
    std::vector<Visit> visits;
    core_.bind(stage, limit, ticket, visits);
    most_visitors_ = std::max(most_visitors_, static_cast<int32_t>(visits.size()));
    if (visits.empty()) {
      return;
    }
    if (stage == options_.layers) {
      at(stage_end, [this, visits] {
        for (const Visit& visit : visits) {
          ++tokens_;
          sampled_.push_back(visit.sequence);
        }
      });
      return;
    }
    std::vector<HopId> hops;
    for (const Visit& visit : visits) {
      hops.push_back(visit.hop);
      bound_at_[static_cast<size_t>(raw(visit.sequence))] = stage_end;
    }
    at(stage_end + options_.copy, [this, hops] {
      core_.exits_copied(hops);
      HopTask task;
      while (core_.next_task(now_, task)) {
        serve(task);
      }
    });
  }

  void serve(const HopTask& task) {
    const auto took =
        Nanos{static_cast<int64_t>(service_[static_cast<size_t>(raw(task.sequence))])};
    host_free_ = std::max(host_free_, now_) + took;
    std::exponential_distribution<double> wait(1.0);
    const auto waited =
        static_cast<int64_t>(wait(random_) * static_cast<double>(options_.host_latency.count()));
    at(host_free_ + Nanos{waited}, [this, task] {
      CHECK(core_.task_done(task.hop, task.attempt), "an answer is not wanted");
      std::vector<RowRun> runs;
      core_.take_returns(runs);
      at(now_ + options_.copy, [this, task, runs] {
        core_.returns_copied(runs, now_);
        ++hops_;
        hop_time_ += now_ - bound_at_[static_cast<size_t>(raw(task.sequence))];
      });
    });
  }

  const HopModelOptions options_;
  HopCore core_;
  const int32_t stages_;
  const Nanos stage_time_;
  std::vector<double> service_;  // ns, by sequence
  std::vector<Nanos> bound_at_;  // end of the visit that began the hop, by sequence
  std::mt19937_64 random_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<SequenceId> sampled_;
  Nanos now_{0};
  Nanos host_free_{0};
  Nanos hop_time_{0};
  int64_t order_ = 0;
  int64_t ticket_ = 0;
  int64_t tokens_ = 0;
  int64_t hops_ = 0;
  int32_t most_visitors_ = 0;
};

}  // namespace tandem::piggyback
