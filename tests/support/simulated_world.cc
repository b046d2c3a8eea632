#include "support/simulated_world.h"

#include <algorithm>
#include <utility>

#include "device/op_queries.h"
#include "exec/forward/stages.h"
#include "sim/sim_host.h"

namespace tandem::testing {
namespace {

constexpr int32_t kLayers = 4;  // unless the options say how many

model::ModelConfig shape_of(const WorldOptions& options) {
  model::ModelConfig shape;
  shape.layers =
      options.executor.limits.hops_per_token > 0 ? options.executor.limits.hops_per_token : kLayers;
  shape.hidden = 64;
  shape.intermediate = 64;
  shape.heads = 2;
  shape.kv_heads = 2;
  shape.head_dim = 32;
  shape.vocabulary = 1 << 20;  // prompts of scenarios are numbers in turn
  shape.max_positions = static_cast<int32_t>(options.executor.limits.total_blocks +
                                             options.executor.limits.host_blocks) *
                        options.executor.limits.block_tokens;
  shape.stretched_positions = shape.max_positions;
  return shape;
}

// The cost of a step of the echo executor as times of ops: the fixed part and the rows with
// the embedding, of which a step has one; what rows attend to with the attention of each layer.
std::shared_ptr<const device::OpTable> times_of(const WorldOptions& options,
                                                const model::ModelConfig& shape,
                                                const model::Weights& weights) {
  device::OpTable table;
  const auto embed = [&](int64_t rows) -> device::Op {
    return device::EmbedOp{.rows = rows,
                           .table = weights.embedding,
                           .y_stride = stage_strides(shape, weights).residual};
  };
  device::OpLine line{.key = device::key_of(embed(1)), .points = {}};
  for (const int64_t rows : {int64_t{1}, int64_t{1} << 20}) {
    line.points.push_back(
        {.amount = device::amount_of(embed(rows)),
         .nanos = static_cast<double>(
             (options.executor.step_fixed + options.executor.per_token * rows).count())});
  }
  table.lines = {line};
  const double attended = static_cast<double>(options.executor.per_attended.count()) / shape.layers;
  table.attention = {0, 0, 0, attended, attended};
  return std::make_shared<const device::OpTable>(std::move(table));
}

sim::SimHostSpec host_of(const WorldOptions& options, const model::ModelConfig& shape) {
  sim::SimHostSpec host;
  host.workers = std::max(options.executor.limits.offloaded_sequences, 1);
  // Half of the longest time that the echo world draws for all hops of a token.
  host.task = options.executor.host.max_hops / (2 * shape.layers);
  if (options.host_times.has_value() && options.host_times->attention.per_context_nanos > 0) {
    // Of a layer, or without a number of layers of a step (README.md of tests/scenario).
    const bool of_layer = options.executor.limits.hops_per_token > 0;
    const double nanos =
        options.host_times->attention.per_context_nanos / (of_layer ? 1 : shape.layers);
    const int64_t bytes = model::kv_bytes_per_token(shape, ElementType::kBF16) / shape.layers;
    host.bytes_per_second = static_cast<double>(bytes) * 1e9 / nanos;
    host.task = Nanos{0};
  }
  return host;
}

}  // namespace

// The executor that serves, with counts of what it is asked for.
class SimulatedWorld::CountingExecutor final : public StepExecutor {
 public:
  explicit CountingExecutor(std::unique_ptr<ForwardExecutor> executor)
      : executor_(std::move(executor)) {}

  [[nodiscard]] const ExecutorLimits& limits() const override { return executor_->limits(); }
  void launch(const StepInput& input) override {
    ++steps;
    entered += std::ssize(input.entering);
    transfers += std::ssize(input.transfers);
    executor_->launch(input);
  }
  bool poll(StepResult& result) override { return executor_->poll(result); }
  void wait_no_longer() override { executor_->wait_no_longer(); }
  [[nodiscard]] Nanos next_check(Nanos now) const override { return executor_->next_check(now); }
  void leave(SequenceId offloaded) override { executor_->leave(offloaded); }
  [[nodiscard]] TierEvents take_tier_events() override { return executor_->take_tier_events(); }
  [[nodiscard]] TierCounts tier_counts() const override { return executor_->tier_counts(); }
  [[nodiscard]] int32_t next_stage(SequenceId offloaded) const override {
    return executor_->next_stage(offloaded);
  }

  int64_t steps = 0;
  int64_t entered = 0;
  int64_t transfers = 0;

 private:
  std::unique_ptr<ForwardExecutor> executor_;
};

// Brings what arrives to the engine when its time has come.
class SimulatedWorld::Client final : public VirtualTime::Actor {
 public:
  explicit Client(SimulatedWorld& world) : world_(world) {}
  ~Client() override { world_.time_.forget(*this); }

  void bring(Nanos at, EngineInput input) {
    world_.time_.ask(at, *this, std::ssize(inputs_));
    inputs_.push_back(std::move(input));
  }
  void on_time(int64_t number) override {
    EngineInput& input = inputs_[static_cast<size_t>(number)];
    if (auto* arrival = std::get_if<Arrival>(&input)) {
      const auto tag = static_cast<int64_t>(arrival->request.sink_tag);
      if (world_.driver_->submit(arrival->id, std::move(arrival->request)).has_value()) {
        world_.sink_->of(tag).verdict = AdmissionVerdict{.answer = AdmissionAnswer::kRefuse};
      }
    } else {
      world_.driver_->tell(std::move(input));
    }
  }

 private:
  SimulatedWorld& world_;
  std::vector<EngineInput> inputs_;
};

SimulatedWorld::SimulatedWorld(const WorldOptions& options)
    : options_(with_tiers_of_policy(options)),
      shape_(shape_of(options_)),
      weights_(model::hollow_weights(shape_, device::WeightFormat{.type = ElementType::kBF16})),
      step_times_(believed(options_)),
      policy_(options_.make_policy ? PolicyParts{options_.make_policy(), fill_binder, nullptr}
                                   : policy_parts(options_, step_times_)),
      sink_(std::make_shared<Outcomes>(time_)),
      client_(std::make_unique<Client>(*this)) {
  make_executor();
  const ExecutorLimits& limits = executor_->limits();
  EngineConfig config = options_.engine;
  config.max_model_len = static_cast<int32_t>(limits.total_blocks) * limits.block_tokens;
  config.max_running = std::min(config.max_running, limits.max_logit_rows);
  constexpr int64_t kAnyQueue = int64_t{1} << 40;
  driver_ = std::make_unique<sim::EngineDriver>(
      time_, sim::EngineCosts{.advance = Nanos{0}, .plan = Nanos{0}, .sequence = Nanos{0}},
      sim::EngineDriver::Bounds{.max_queue = kAnyQueue,
                                .max_queue_flex = kAnyQueue,
                                .max_model_len = config.max_model_len,
                                .block_tokens = limits.block_tokens});
  driver_->start(
      config,
      {.executor = *executor_,
       .policy = *policy_.step,
       .clock = time_,
       .observer = observer_,
       .step_times = options_.learning == WorldOptions::Learning::kYes ? &step_times_ : nullptr,
       .admission = policy_.admission.get()});
}

SimulatedWorld::~SimulatedWorld() {
  client_.reset();
  driver_->end();
}

void SimulatedWorld::make_executor() {
  const ExecutorLimits& limits = options_.executor.limits;
  device_ = std::make_unique<device::SimDevice>(
      time_, device::SimSpec{.name = "scenario",
                             .measured = times_of(options_, shape_, weights_),
                             .memory_bytes = int64_t{1} << 40,
                             .host_memory_bytes = limits.host_blocks > 0 ? int64_t{1} << 40 : 0,
                             .link_bytes = 1e15,
                             .link_latency = Nanos{0},
                             .launch = Nanos{0},
                             .vocabulary = shape_.vocabulary});
  ExecutorOptions executor;
  executor.max_batched_tokens = limits.max_batched_tokens;
  executor.max_logit_rows = limits.max_logit_rows;
  executor.block_tokens = limits.block_tokens;
  executor.served_positions = shape_.max_positions;
  const int64_t block_bytes = kv_layout_for(shape_, executor).block_bytes();
  executor.kv_bytes = limits.total_blocks * block_bytes;
  executor.compute_threads = 1;
  if (limits.host_blocks > 0) {
    binder_ = policy_.make_binder();
    executor.host.kv_bytes = limits.host_blocks * block_bytes;
    executor.host.sequences = limits.offloaded_sequences;
    executor.host.staging_tokens = limits.staging_blocks * limits.block_tokens;
    executor.host.threads = 1;
    executor.host.clock = &time_;
    executor.host.binder = binder_.get();
    executor.host.attention = [this](const piggyback::AttentionSpec& spec) {
      return Result<std::unique_ptr<piggyback::AttentionHost>>(
          std::make_unique<sim::SimHosts>(time_, std::vector{host_of(options_, shape_)}, spec));
    };
  }
  Result<std::unique_ptr<ForwardExecutor>> made =
      ForwardExecutor::create(shape_, weights_, *device_, executor, [this] {
        if (driver_ != nullptr) {
          driver_->completed();
        }
      });
  CHECK(made.ok(), "{}", made.error().message);
  executor_ = std::make_unique<CountingExecutor>(*std::move(made));
}

void SimulatedWorld::arrive(Nanos at, int64_t id, Request request) {
  request.sink = sink_;
  request.sink_tag = static_cast<uint64_t>(id);
  Arrival arrival;
  arrival.id = RequestId{id};
  arrival.request = std::move(request);
  client_->bring(at, std::move(arrival));
}
void SimulatedWorld::cancel(Nanos at, int64_t id) {
  client_->bring(at, EngineCancel{RequestId{id}});
}
void SimulatedWorld::stop(Nanos at, int64_t id, int32_t choice) {
  client_->bring(at, EngineStop{RequestId{id}, choice});
}

void SimulatedWorld::run_until_idle() {
  constexpr Nanos kLongest = std::chrono::minutes(10);  // of any story
  constexpr int64_t kMostHappenings = 2'000'000;
  while (time_.step()) {
    const EngineLoad load = engine().load();
    CHECK(time_.now() < kLongest && time_.steps() < kMostHappenings,
          "no end after {:.3f} s, {} steps and {} happenings: {} running, {} waiting, {} hops",
          to_seconds(time_.now()), steps(), time_.steps(), load.running, load.waiting,
          executor_->tier_counts().hops_in_flight);
    const Status books = engine().audit();
    CHECK(books.ok(), "{}", books.error().message);
  }
  CHECK(driver_->idle(), "nothing is left to happen, and the engine is busy");
}

int64_t SimulatedWorld::steps() const { return executor_->steps; }
int64_t SimulatedWorld::offloaded() const { return executor_->entered; }
int64_t SimulatedWorld::transfers() const { return executor_->transfers; }
bool SimulatedWorld::drained() const { return executor_->tier_counts().hops_in_flight == 0; }

}  // namespace tandem::testing
