#include "observe/engine_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "base/check.h"
#include "observe/admission_metrics.h"
#include "observe/metrics_json.h"
#include "observe/tier_metrics.h"
#include "observe/time_metrics.h"

namespace tandem::observe {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;
using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;

const Buckets kFirstTokenSeconds = {0.001, 0.005, 0.01, 0.02,  0.04,  0.06,  0.08, 0.1,
                                    0.25,  0.5,   0.75, 1.0,   2.5,   5.0,   7.5,  10.0,
                                    20.0,  40.0,  80.0, 160.0, 640.0, 2560.0};
const Buckets kTokenSeconds = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                               0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
const Buckets kRequestSeconds = {0.3,  0.5,   0.8,   1.0,   1.5,   2.0,    2.5,
                                 5.0,  10.0,  15.0,  20.0,  30.0,  40.0,   50.0,
                                 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
const Buckets kStepSeconds = {0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                              0.05,   0.1,    0.25,  0.5,    1.0,   2.5,  5.0};
const Buckets kWorkSeconds = {5e-6,   1e-5,   2.5e-5, 5e-5, 7.5e-5, 1e-4,
                              1.5e-4, 2.5e-4, 5e-4,   1e-3, 5e-3};
const Buckets kStepTokens = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
const Buckets kChoices = {1, 2, 5, 10, 20};

// 1, 2, 5, 10, ... up to a million: lengths in tokens.
Buckets token_counts() {
  Buckets buckets;
  for (double decade = 1; decade <= 1e5; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) {
      buckets.push_back(step * decade);
    }
  }
  return buckets;
}

double difference(Nanos later, Nanos earlier) { return to_seconds(later - earlier); }

}  // namespace

// One metric may be published under both names: the lists below hold one or two of each.
class EngineMetrics::Impl {
 public:
  explicit Impl(const EngineMetricsOptions& options) : options_(options) {
    own_labels_ = {{"model_name", options.model_name}};
    vllm_labels_ = {{"model_name", options.model_name}, {"engine", "0"}};
    running = gauge("requests_running", "num_requests_running", "Sequences that run");
    waiting = gauge("requests_waiting", "num_requests_waiting", "Sequences that wait");
    make_waiting_by_class();
    make_rejection_counters();
    kv_usage = gauge("kv_usage_ratio", "kv_cache_usage_perc",
                     "Share of the KV blocks held by sequences, 0 to 1");
    kv_blocks_in_use = gauge("kv_blocks_in_use", "", "KV blocks held by sequences");
    kv_blocks_total = gauge("kv_blocks", "", "KV blocks in all");
    prompt_tokens = counter("prompt_tokens_total", "prompt_tokens_total",
                            "Prompt tokens of requests that began to answer");
    generation_tokens =
        counter("generation_tokens_total", "generation_tokens_total", "Output tokens computed");
    preemptions = counter("preemptions_total", "num_preemptions_total",
                          "Sequences dropped for lack of KV blocks");
    plan_shortfalls = counter("plan_shortfalls_total", "",
                              "Parts of step plans that found too few KV blocks and were put off");
    prefix_queries = counter("prefix_cache_queries_total", "prefix_cache_queries_total",
                             "Tokens looked up in the prefix cache");
    prefix_hits = counter("prefix_cache_hits_total", "prefix_cache_hits_total",
                          "Tokens found in the prefix cache");
    prompt_cached = counter("prompt_tokens_cached_total", "prompt_tokens_cached_total",
                            "Prompt tokens not computed anew");
    steps = counter("steps_total", "", "Steps of the engine");
    first_token = by_class("time_to_first_token_seconds", "Arrival at the engine to first token",
                           kFirstTokenSeconds);
    token_gap = by_class("inter_token_latency_seconds",
                         "Gap between consecutive tokens of a sequence", kTokenSeconds);
    make_slo_counters();
    per_token =
        histogram("request_time_per_output_token_seconds", "request_time_per_output_token_seconds",
                  "(last - first token) / (tokens - 1) of a request", kTokenSeconds);
    whole = histogram("e2e_request_latency_seconds", "e2e_request_latency_seconds",
                      "Arrival to end", kRequestSeconds);
    queued = histogram("request_queue_time_seconds", "request_queue_time_seconds",
                       "Arrival to admission", kRequestSeconds);
    inference = histogram("request_inference_time_seconds", "request_inference_time_seconds",
                          "Admission to end", kRequestSeconds);
    prefill = histogram("request_prefill_time_seconds", "request_prefill_time_seconds",
                        "Admission to first token", kRequestSeconds);
    decode = histogram("request_decode_time_seconds", "request_decode_time_seconds",
                       "First to last token", kRequestSeconds);
    step_tokens = histogram("step_tokens", "iteration_tokens_total", "Tokens computed in a step",
                            kStepTokens);
    step_time = histogram("step_seconds", "", "Launch to commit of a step", kStepSeconds);
    engine_work =
        histogram("engine_work_seconds", "", "The engine thread's own time per step", kWorkSeconds);
    request_prompt = histogram("request_prompt_tokens", "request_prompt_tokens",
                               "Prompt tokens of a request", token_counts());
    request_output = histogram("request_generation_tokens", "request_generation_tokens",
                               "Output tokens of a request", token_counts());
    request_max = histogram("request_params_max_tokens", "request_params_max_tokens",
                            "max_tokens of a request", token_counts());
    request_n = histogram("request_params_n", "request_params_n", "n of a request", kChoices);
    if (options.host_blocks > 0) {
      CHECK(options.clock != nullptr, "metrics of two tiers need a clock");
      tiers = std::make_unique<TierMetrics>(registry_, own_labels_, *options.clock);
    }
    if (options.predicted == Predicted::kYes) {
      times = std::make_unique<TimeMetrics>(registry_, own_labels_);
    }
    if (options.admission == Admits::kYes) {
      admission = std::make_unique<AdmissionMetrics>(registry_, own_labels_);
    }
    if (options.vllm_names) {
      make_vllm_alone();
    }
  }

  std::unique_ptr<TierMetrics> tiers;           // null: one tier
  std::unique_ptr<TimeMetrics> times;           // null: steps are not predicted
  std::unique_ptr<AdmissionMetrics> admission;  // null: there is none

  template <class Metric>
  using Both = std::vector<Metric*>;

  Both<Gauge> gauge(const std::string& own, const std::string& vllm, const std::string& help) {
    return both<Gauge>(own, vllm, [&](const std::string& name, const prometheus::Labels& labels) {
      return &prometheus::BuildGauge().Name(name).Help(help).Register(registry_).Add(labels);
    });
  }
  Both<Counter> counter(const std::string& own, const std::string& vllm, const std::string& help) {
    return both<Counter>(own, vllm, [&](const std::string& name, const prometheus::Labels& labels) {
      return &prometheus::BuildCounter().Name(name).Help(help).Register(registry_).Add(labels);
    });
  }
  Both<Histogram> histogram(const std::string& own, const std::string& vllm,
                            const std::string& help, const Buckets& buckets) {
    return both<Histogram>(
        own, vllm, [&](const std::string& name, const prometheus::Labels& labels) {
          return &prometheus::BuildHistogram().Name(name).Help(help).Register(registry_).Add(
              labels, buckets);
        });
  }

  // Tandem's own one labelled with the class, vLLM's without.
  std::array<Both<Histogram>, kServiceClasses> by_class(const std::string& name,
                                                        const std::string& help,
                                                        const Buckets& buckets) {
    std::array<Both<Histogram>, kServiceClasses> classes;
    Histogram* vllm = nullptr;
    if (options_.vllm_names) {
      vllm = &prometheus::BuildHistogram()
                  .Name("vllm:" + name)
                  .Help(help)
                  .Register(registry_)
                  .Add(vllm_labels_, buckets);
    }
    auto& own = prometheus::BuildHistogram().Name("tandem_" + name).Help(help).Register(registry_);
    for (size_t i = 0; i < kServiceClasses; ++i) {
      classes[i].push_back(&own.Add(class_labels(i), buckets));
      if (vllm != nullptr) {
        classes[i].push_back(vllm);
      }
    }
    return classes;
  }

  // vLLM's names without a counterpart of Tandem's own. vLLM tells sequences that wait for room
  // (capacity) from those that something else holds back (deferred: an adapter, a transfer), which
  // no sequence of Tandem's is.
  void make_vllm_alone() {
    request_max_output = &prometheus::BuildHistogram()
                              .Name("vllm:request_max_num_generation_tokens")
                              .Help("Output tokens of a request's longest choice")
                              .Register(registry_)
                              .Add(vllm_labels_, token_counts());
    prometheus::Labels config = vllm_labels_;
    config["block_size"] = std::to_string(options_.block_tokens);
    config["num_gpu_blocks"] = std::to_string(options_.total_blocks);
    prometheus::BuildGauge()
        .Name("vllm:cache_config_info")
        .Help("KV blocks")
        .Register(registry_)
        .Add(config)
        .Set(1);
    auto& reasons = prometheus::BuildGauge()
                        .Name("vllm:num_requests_waiting_by_reason")
                        .Help("Sequences that wait, by what they wait for")
                        .Register(registry_);
    prometheus::Labels labels = vllm_labels_;
    labels["reason"] = "capacity";
    waiting_for_capacity = &reasons.Add(labels);
    labels["reason"] = "deferred";
    reasons.Add(labels).Set(0);
  }

  void make_waiting_by_class() {
    auto& gauges = prometheus::BuildGauge()
                       .Name("tandem_requests_waiting_by_class")
                       .Help("Sequences that wait, by class")
                       .Register(registry_);
    for (size_t i = 0; i < kServiceClasses; ++i) {
      waiting_by_class[i] = &gauges.Add(class_labels(i));
    }
  }

  // They begin at 0, so that a rate over them is known from the first one on.
  void make_rejection_counters() {
    for (const char* reason : {"queue_full", "draining"}) {
      reject(reason, 0);
    }
  }

  // vLLM's counter has no label "engine", and its own name for a queue that is full.
  void reject(const std::string& reason, double count) {
    constexpr const char* kHelp = "Requests refused before they ran";
    const auto add = [&](const char* name, const std::string& label) {
      prometheus::Labels labels = own_labels_;
      labels["reason"] = label;
      prometheus::BuildCounter().Name(name).Help(kHelp).Register(registry_).Add(labels).Increment(
          count);
    };
    add("tandem_admission_rejections_total", reason);
    if (options_.vllm_names) {
      add("vllm:admission_rejections_total",
          reason == "queue_full" ? "max_num_queued_reqs" : reason);
    }
  }

  // They begin at 0 as well.
  void make_slo_counters() {
    auto& outcomes = prometheus::BuildCounter()
                         .Name("tandem_slo_requests_total")
                         .Help("Ended choices that had targets, by whether they were met")
                         .Register(registry_);
    auto& misses = prometheus::BuildCounter()
                       .Name("tandem_slo_misses_total")
                       .Help("Missed choices by the target that was missed; one may miss both")
                       .Register(registry_);
    const auto with = [](prometheus::Labels labels, const char* name, const char* value) {
      labels[name] = value;
      return labels;
    };
    for (size_t i = 0; i < kServiceClasses; ++i) {
      const prometheus::Labels labels = class_labels(i);
      slo[i] = {.met = &outcomes.Add(with(labels, "outcome", "met")),
                .missed = &outcomes.Add(with(labels, "outcome", "missed")),
                .aborted = &outcomes.Add(with(labels, "outcome", "aborted")),
                .missed_ttft = &misses.Add(with(labels, "target", "ttft")),
                .missed_tpot = &misses.Add(with(labels, "target", "tpot"))};
    }
  }

  // Counters whose label is known only when something happens.
  void count(const std::string& own, const std::string& vllm, const std::string& help,
             const std::pair<std::string, std::string>& label) {
    for (Counter* one :
         both<Counter>(own, vllm, [&](const std::string&name, prometheus::Labels labels) {
           labels.insert(label);
           return &prometheus::BuildCounter().Name(name).Help(help).Register(registry_).Add(labels);
         })) {
      one->Increment();
    }
  }

  void count_slo(const RequestRecord& record) {
    const SloCounters& counters = slo[static_cast<size_t>(record.service_class)];
    switch (record.slo) {
      case SloOutcome::kNoTargets:
        return;
      case SloOutcome::kMet:
        counters.met->Increment();
        return;
      case SloOutcome::kAborted:
        counters.aborted->Increment();
        return;
      case SloOutcome::kMissed:
        counters.missed->Increment();
        break;
    }
    if (!record.verdict.ttft_kept) {
      counters.missed_ttft->Increment();
    }
    if (!record.verdict.tpot_kept) {
      counters.missed_tpot->Increment();
    }
  }

  [[nodiscard]] std::string render() const {
    return prometheus::TextSerializer().Serialize(registry_.Collect());
  }
  [[nodiscard]] std::string json() const { return metrics_json(registry_.Collect()); }

  Gauge* waiting_for_capacity = nullptr;    // null: without vLLM's names
  Histogram* request_max_output = nullptr;  // the same
  std::array<Gauge*, kServiceClasses> waiting_by_class{};
  Both<Gauge> running, waiting, kv_usage, kv_blocks_in_use, kv_blocks_total;
  Both<Counter> prompt_tokens, generation_tokens, preemptions, plan_shortfalls, prefix_queries,
      prefix_hits, prompt_cached, steps;
  std::array<Both<Histogram>, kServiceClasses> first_token, token_gap;
  struct SloCounters {
    Counter* met = nullptr;
    Counter* missed = nullptr;
    Counter* aborted = nullptr;
    Counter* missed_ttft = nullptr;
    Counter* missed_tpot = nullptr;
  };
  std::array<SloCounters, kServiceClasses> slo;  // by ServiceClass
  Both<Histogram> per_token, whole, queued, inference, prefill, decode, step_tokens, step_time,
      engine_work, request_prompt, request_output, request_max, request_n;

 private:
  [[nodiscard]] prometheus::Labels class_labels(size_t index) const {
    prometheus::Labels labels = own_labels_;
    labels["class"] = class_name(static_cast<ServiceClass>(index));
    return labels;
  }

  template <class Metric, class Make>
  Both<Metric> both(const std::string& own, const std::string& vllm, const Make& make) {
    Both<Metric> metrics{make("tandem_" + own, own_labels_)};
    if (options_.vllm_names && !vllm.empty()) {
      metrics.push_back(make("vllm:" + vllm, vllm_labels_));
    }
    return metrics;
  }

  EngineMetricsOptions options_;
  prometheus::Labels own_labels_;
  prometheus::Labels vllm_labels_;
  prometheus::Registry registry_{prometheus::Registry::InsertBehavior::Merge};
};

namespace {

void set(const std::vector<Gauge*>& gauges, double value) {
  for (Gauge* one : gauges) {
    one->Set(value);
  }
}
void add(const std::vector<Counter*>& counters, int64_t count) {
  for (Counter* one : counters) {
    one->Increment(static_cast<double>(count));
  }
}
void observe_value(const std::vector<Histogram*>& histograms, double value) {
  for (Histogram* one : histograms) {
    one->Observe(value);
  }
}

// The same value several times, `bounds` being the histograms' own.
void observe_times(const std::vector<Histogram*>& histograms, const Buckets& bounds, double value,
                   int32_t times) {
  std::vector<double> increments(bounds.size() + 1, 0.0);
  const auto bucket = std::ranges::lower_bound(bounds, value) - bounds.begin();
  increments[static_cast<size_t>(bucket)] = times;
  for (Histogram* one : histograms) {
    one->ObserveMultiple(increments, value * times);
  }
}

}  // namespace

EngineMetrics::EngineMetrics(const EngineMetricsOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
EngineMetrics::~EngineMetrics() = default;

void EngineMetrics::on_gauges(const EngineGauges& gauges) {
  set(impl_->running, static_cast<double>(gauges.running));
  set(impl_->waiting, static_cast<double>(gauges.waiting));
  for (size_t i = 0; i < kServiceClasses; ++i) {
    impl_->waiting_by_class[i]->Set(static_cast<double>(gauges.waiting_by_class[i]));
  }
  if (impl_->waiting_for_capacity != nullptr) {
    impl_->waiting_for_capacity->Set(static_cast<double>(gauges.waiting));
  }
  set(impl_->kv_blocks_in_use, static_cast<double>(gauges.blocks_in_use));
  set(impl_->kv_blocks_total, static_cast<double>(gauges.total_blocks));
  set(impl_->kv_usage, gauges.total_blocks == 0 ? 0.0
                                                : static_cast<double>(gauges.blocks_in_use) /
                                                      static_cast<double>(gauges.total_blocks));
  if (impl_->tiers != nullptr) {
    impl_->tiers->set(gauges);
  }
}

void EngineMetrics::on_tiers(const TierRecord& record) {
  if (impl_->tiers != nullptr) {
    impl_->tiers->set(record);
  }
}

void EngineMetrics::on_admission(const AdmissionRecord& record) {
  if (impl_->admission != nullptr) {
    impl_->admission->decided(record);
  }
}

void EngineMetrics::on_pace(const PaceRecord& record) {
  if (impl_->tiers != nullptr) {
    impl_->tiers->set(record);
  }
}

void EngineMetrics::on_step(const StepRecord& record) {
  if (impl_->tiers != nullptr) {
    impl_->tiers->add(record);
  }
  add(impl_->steps, 1);
  add(impl_->prompt_tokens, record.prompt_tokens);
  add(impl_->prompt_cached, record.cached_tokens);
  add(impl_->generation_tokens, record.sampled_tokens);
  add(impl_->preemptions, record.preempted);
  add(impl_->plan_shortfalls, record.put_off);
  add(impl_->prefix_queries, record.prefix_queried_tokens);
  add(impl_->prefix_hits, record.prefix_hit_tokens);
  for (size_t i = 0; i < kServiceClasses; ++i) {
    for (const Nanos time : record.first_token_times[i]) {
      observe_value(impl_->first_token[i], to_seconds(time));
    }
    for (const StepRecord::TokenGap& gap : record.token_gaps[i]) {
      observe_times(impl_->token_gap[i], kTokenSeconds, to_seconds(gap.gap), gap.tokens);
    }
  }
  observe_value(impl_->step_tokens, record.prefill_tokens + record.decode_tokens);
  observe_value(impl_->step_time, to_seconds(record.duration));
  observe_value(impl_->engine_work, to_seconds(record.engine_work));
  if (impl_->times != nullptr) {
    impl_->times->add(record);
  }
  if (impl_->admission != nullptr) {
    impl_->admission->add(record);
  }
}

void EngineMetrics::on_request(const RequestRecord& record) {
  impl_->count("requests_total", "request_success_total", "Ended choices by reason",
               {"finished_reason", record.finish_reason});
  impl_->count_slo(record);
  observe_value(impl_->whole, difference(record.ended, record.arrived));
  observe_value(impl_->request_prompt, record.prompt_tokens);
  observe_value(impl_->request_output, record.output_tokens);
  observe_value(impl_->request_max, record.max_tokens);
  if (record.max_output_tokens.has_value()) {  // the request's last choice: once a request
    observe_value(impl_->request_n, record.n);
    if (impl_->request_max_output != nullptr) {
      impl_->request_max_output->Observe(*record.max_output_tokens);
    }
  }
  if (record.admitted == Nanos{0}) {
    return;  // never ran
  }
  observe_value(impl_->queued, difference(record.admitted, record.arrived));
  observe_value(impl_->inference, difference(record.ended, record.admitted));
  if (record.output_tokens >= 1) {
    observe_value(impl_->prefill, difference(record.first_token, record.admitted));
    observe_value(impl_->decode, difference(record.last_token, record.first_token));
  }
  if (record.output_tokens >= 2) {
    observe_value(impl_->per_token,
                  difference(record.last_token, record.first_token) / (record.output_tokens - 1));
  }
}

void EngineMetrics::on_rejected(const std::string& reason) { impl_->reject(reason, 1); }

std::string EngineMetrics::render() const { return impl_->render(); }
std::string EngineMetrics::json() const { return impl_->json(); }

}  // namespace tandem::observe
