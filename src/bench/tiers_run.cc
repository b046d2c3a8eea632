#include "bench/tiers_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/affinity.h"
#include "base/log.h"
#include "base/thread_time.h"
#include "bench/measuring.h"
#include "node/config_json.h"
#include "node/policy_choice.h"

namespace tandem::bench {
namespace {

constexpr Nanos kLook = std::chrono::milliseconds(5);  // between looks when nothing completes
constexpr int64_t kUnseenSteps = 4;                    // steps that may have begun already
constexpr Nanos kPatience = std::chrono::minutes(3);   // for a phase to begin

// That the accelerator's compute was busy, as modelled.
Nanos compute_time(const device::DeviceStatistics& statistics) {
  Nanos sum{0};
  for (const device::StreamStatistics& stream : statistics.streams) {
    sum += stream.kind == device::StreamKind::kCompute ? stream.busy : Nanos{0};
  }
  return sum;
}

}  // namespace

class TiersRun::Probe final : public observe::EngineObserver {
 public:
  void on_step(const observe::StepRecord& record) override {
    const Nanos now = clock_.now();
    const Nanos compute = compute_time(device->statistics());
    if (steps > 0) {
      const double interval = to_seconds(now - last_seen_);
      intervals.push_back(interval);
      const double modelled = to_seconds(compute - last_compute_);
      ratios.push_back(modelled > 0 ? interval / modelled : 0);  // a GPU models nothing
    }
    last_seen_ = now;
    last_compute_ = compute;
    ++steps;
    last_decodes = record.decode_tokens;
  }
  void on_gauges(const observe::EngineGauges& record) override { gauges = record; }
  void on_tiers(const observe::TierRecord& record) override {
    tiers = record.counts;
    flight_sum += static_cast<double>(record.counts.hops_in_flight);
    ++flight_count;
  }
  void on_request(const observe::RequestRecord& /*record*/) override { ++ended; }

  void begin_window() {
    intervals.clear();
    ratios.clear();
    flight_sum = 0;
    flight_count = 0;
  }

  const device::Device* device = nullptr;
  // Since the window began: from step to step, and how much longer than modelled that was.
  std::vector<double> intervals;
  std::vector<double> ratios;
  double flight_sum = 0;
  int64_t flight_count = 0;
  int64_t steps = 0;
  int64_t ended = 0;
  int32_t last_decodes = 0;
  observe::EngineGauges gauges;
  TierCounts tiers;

 private:
  const SteadyClock clock_{};
  Nanos last_seen_{0};
  Nanos last_compute_{0};
};

// Read at both ends of a window.
struct TiersRun::Sums {
  Nanos now{0};
  Nanos thread{0};
  Nanos advance{0};
  int64_t advances = 0;
  int64_t steps = 0;
  TierCounts tiers;
  Nanos compute{0};
  int64_t ops = 0;
  int64_t overruns = 0;
};

TiersRun::TiersRun(const NodeOptions& options, const TiersLoad& load)
    : options_(options), load_(load), probe_(std::make_unique<Probe>()) {}

// As a node does: the device's last call of its listener may still be on its way.
TiersRun::~TiersRun() {
  if (engine_ != nullptr) {
    loaded_->executor->thaw_host();
    cancel_all(*engine_, inputs_);
    while (engine_->advance(clock_.now(), inputs_).activity != EngineActivity::kIdle) {
      bell_.wait_for(kLook);
    }
  }
  engine_.reset();
  loaded_.reset();
  if (planned_ != nullptr) {
    std::vector<int32_t> cpus = planned_->device->caps().cpus;
    const std::vector<int32_t>& host = planned_->device->device().host().cpus;
    if (!cpus.empty()) {
      cpus.insert(cpus.end(), host.begin(), host.end());
      pin_this_thread(cpus);  // the next run divides them anew
    }
    planned_->device->end();
  }
}

Result<std::unique_ptr<TiersRun>> TiersRun::create(const model::ModelConfig& shape,
                                                   const NodeOptions& options,
                                                   const TiersLoad& load) {
  std::unique_ptr<TiersRun> run(new TiersRun(options, load));
  model::ModelFolder folder;
  folder.config = shape;
  choose_plain_policy(run->options_);
  run->options_.hop_patience = std::chrono::hours(1);  // a frozen host is no fault here
  ASSIGN_OR_RETURN(SoleModel planned,
                   run->options_.model.empty()
                       ? plan_model(std::move(folder), run->options_, run->clock_)
                       : open_model(run->options_, run->clock_));
  run->planned_ = std::make_unique<SoleModel>(std::move(planned));
  const PlannedModel& model = run->model();
  run->probe_->device = &model.device.device();
  Bell& bell = run->bell_;
  ASSIGN_OR_RETURN(run->loaded_, load_model(model, {}, [&bell] { bell.ring(); }));
  ASSIGN_OR_RETURN(run->scheduled_,
                   complete_model(run->options_, model, *run->loaded_, bell, run->clock_, {}));
  EngineConfig config = engine_config(run->options_, model, run->scheduled_.profile.get());
  config.prefix_caching = PrefixCaching::kOff;
  run->engine_ =
      std::make_unique<Engine>(config, EngineParts{.executor = *run->loaded_->executor,
                                                   .policy = *run->scheduled_.policy.step,
                                                   .clock = run->clock_,
                                                   .observer = *run->probe_});
  if (!model.device.caps().cpus.empty()) {
    pin_this_thread(model.device.caps().cpus);
  }
  return run;
}

void TiersRun::post(ServiceClass service_class, int32_t count, int32_t prompt_tokens) {
  std::uniform_int_distribution<TokenId> token(0, model().folder.config.vocabulary - 1);
  for (int32_t i = 0; i < count; ++i) {
    Request request;
    request.service_class = service_class;
    request.prompt.resize(static_cast<size_t>(prompt_tokens));
    std::ranges::generate(request.prompt, [&] { return token(random_); });
    request.sampling.temperature = 0.0F;
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = load_.output;
    inputs_.emplace_back(Engine::make_arrival(RequestId{next_request_++}, std::move(request),
                                              clock_.now(), model().plan.block_tokens));
  }
}

EngineActivity TiersRun::advance() {
  const Nanos before = thread_time();
  const EngineActivity activity = engine_->advance(clock_.now(), inputs_).activity;
  advance_time_ += thread_time() - before;
  ++advances_;
  return activity;
}

template <class Done>
Status TiersRun::run_until(const Done& done) {
  while (true) {
    const EngineActivity activity = advance();
    if (probe_->ended > dismissed_) {
      return Error{
          ErrorCode::kResourceExhausted,
          fmt::format("a sequence ended after its {} tokens, before all was measured: raise "
                      "--output, or take a model with a longer context",
                      load_.output),
          "output"};
    }
    if (done()) {
      return {};
    }
    if (activity == EngineActivity::kIdle) {
      return Error{ErrorCode::kUnavailable, "the engine has nothing left to do", ""};
    }
    bell_.wait_for(kLook);
  }
}

Status TiersRun::admit_residents() {
  post(ServiceClass::kLatencySensitive, load_.residents, load_.resident_prompt);
  const Nanos until = clock_.now() + kPatience;
  RETURN_IF_ERROR(
      run_until([&] { return probe_->last_decodes >= load_.residents || clock_.now() > until; }));
  if (probe_->last_decodes < load_.residents) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("{} of {} residents decode after three minutes; use fewer, or shorter "
                             "prompts",
                             probe_->last_decodes, load_.residents),
                 "residents"};
  }
  return {};
}

Status TiersRun::admit_offloaded() {
  post(ServiceClass::kBestEffort, load_.offloaded, load_.offloaded_prompt);
  const Nanos until = clock_.now() + kPatience;
  // The KV of all sequences is on the host, and each sequence has since made a full turn: their
  // tokens are spread over the stages.
  int64_t wanted_visits = -1;
  const int64_t turn = int64_t{load_.offloaded} * (model().folder.config.layers + 1);
  RETURN_IF_ERROR(run_until([&] {
    const observe::EngineGauges& gauges = probe_->gauges;
    if (wanted_visits < 0 && gauges.offloaded >= load_.offloaded && gauges.moving == 0) {
      wanted_visits = probe_->tiers.visits + turn;
    }
    return (wanted_visits >= 0 && probe_->tiers.visits >= wanted_visits) || clock_.now() > until;
  }));
  if (wanted_visits < 0 || probe_->tiers.visits < wanted_visits) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("{} of {} best-effort sequences are on the host after three minutes; "
                             "use fewer, or shorter prompts",
                             probe_->gauges.offloaded - probe_->gauges.moving, load_.offloaded),
                 "offloaded"};
  }
  return {};
}

// The residents came first, so they have the first numbers.
Status TiersRun::dismiss_offloaded() {
  dismissed_ = load_.offloaded;
  for (int64_t i = 1; i <= load_.offloaded; ++i) {
    inputs_.emplace_back(EngineCancel{RequestId{load_.residents + i}});
  }
  return run_until([&] { return probe_->ended >= dismissed_; });
}

TiersRun::Sums TiersRun::sums() const {
  Sums sums{.now = clock_.now(),
            .thread = thread_time(),
            .advance = advance_time_,
            .advances = advances_,
            .steps = probe_->steps,
            .tiers = probe_->tiers,
            .compute = Nanos{0},
            .ops = 0,
            .overruns = 0};
  const device::DeviceStatistics statistics = model().device.device().statistics();
  sums.compute = compute_time(statistics);
  for (const device::StreamStatistics& stream : statistics.streams) {
    sums.ops += stream.ops;
    sums.overruns += stream.overruns;
  }
  return sums;
}

Result<TiersWindow> TiersRun::measure(Nanos length) {
  const int64_t first = probe_->steps;  // begins where a step ends
  RETURN_IF_ERROR(run_until([&] { return probe_->steps > first; }));
  probe_->begin_window();
  const Sums from = sums();
  // A resident gets a token in each step.
  const int64_t step_limit =
      steps_of_window(load_.output - probe_->steps - kUnseenSteps, length, to_come_);
  to_come_ -= std::min(length, to_come_);
  int64_t seen = probe_->steps;
  RETURN_IF_ERROR(run_until([&] {
    const bool ended = probe_->steps > seen;
    seen = probe_->steps;
    return ended && (clock_.now() - from.now >= length || seen - from.steps >= step_limit);
  }));
  const Sums to = sums();
  const double seconds = to_seconds(to.now - from.now);
  const auto steps = static_cast<double>(to.steps - from.steps);
  const auto hops = static_cast<double>(to.tiers.hops - from.tiers.hops);
  const auto bytes = static_cast<double>(to.tiers.attended_bytes - from.tiers.attended_bytes);
  const double busy = to_seconds(to.tiers.attention_time - from.tiers.attention_time);
  const auto ops = static_cast<double>(to.ops - from.ops);
  return TiersWindow{
      .seconds = seconds,
      .steps = to.steps - from.steps,
      .middle_step = (static_cast<double>(from.steps) + static_cast<double>(to.steps)) / 2,
      .step_seconds = median_of(probe_->intervals),
      .over_model = median_of(probe_->ratios),
      .modelled_seconds = to_seconds(to.compute - from.compute) / steps,
      .engine_seconds = to_seconds(to.thread - from.thread) / steps,
      .advance_seconds = to_seconds(to.advance - from.advance) / steps,
      .advances = static_cast<double>(to.advances - from.advances) / steps,
      .visits = static_cast<double>(to.tiers.visits - from.tiers.visits) / seconds,
      .hops = hops / seconds,
      .hop_bytes_out =
          static_cast<double>(to.tiers.bytes_to_host - from.tiers.bytes_to_host) / seconds,
      .hop_bytes_back =
          static_cast<double>(to.tiers.bytes_from_host - from.tiers.bytes_from_host) / seconds,
      .attended_bytes = hops > 0 ? bytes / hops : 0,
      .host_rate = busy > 0 ? bytes / busy : 0,
      .host_busy = busy / seconds,
      .hops_in_flight =
          probe_->flight_sum / static_cast<double>(std::max<int64_t>(probe_->flight_count, 1)),
      .overrun_share = ops > 0 ? static_cast<double>(to.overruns - from.overruns) / ops : 0};
}

void TiersRun::freeze_host() { loaded_->executor->freeze_host(); }
void TiersRun::thaw_host() { loaded_->executor->thaw_host(); }

std::string TiersRun::config() const { return effective_config_json(options_, model()); }

double TiersRun::token_layer_bytes() const {
  return static_cast<double>(model::kv_bytes_per_token(model().folder.config, model().kv_dtype)) /
         model().folder.config.layers;
}

}  // namespace tandem::bench
