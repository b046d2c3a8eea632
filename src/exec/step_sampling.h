// The end of a step: draws from the logits of its sampled rows, residents' first, then visitors',
// scores prompt tokens, and brings the results to the host. Owns the memory of the results. Engine
// thread; only queues ops until collect.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "exec/batch_layout.h"
#include "exec/forward/stages.h"
#include "model/config.h"
#include "model/weights.h"
#include "plan/step.h"

namespace tandem {

struct WorkspaceSizes;

class StepSampling {
 public:
  struct Place {
    device::Device& device;
    device::StreamId stream;
    bool keep_logits = false;  // for comparisons: kept_logits()
  };
  // Rows of logits that are sampled, in device memory.
  struct Rows {
    const kernels::SampleRow* rows = nullptr;
    int32_t count = 0;
  };

  StepSampling(const model::ModelConfig& config, const model::Weights& weights,
               const ExecutorLimits& limits, const Place& place)
      : config_(config), weights_(weights), limits_(limits), place_(place) {}

  // Bytes of the results of `rows` rows of logits, the same on device and host.
  static int64_t result_bytes(int64_t rows);
  // Bytes of the scores of `tokens` prompt tokens, on the host.
  static int64_t score_bytes(int64_t tokens);
  Status allocate(const WorkspaceSizes& sizes);
  [[nodiscard]] float* logits() const { return reinterpret_cast<float*>(logits_->data()); }

  // A step begins: its residents' samples, in order.
  void begin(const StepInput& input);
  // A visitor of the last stage, in the order of its rows.
  void add_visitor(const SampleSpec& spec) { add(spec); }
  // Of the logits that the last stage leaves; once for each of its launches. Their results stand
  // behind those before, residents' first.
  void launch(const Rows& residents, const Rows& visitors);
  // The last stage once more for the rows of a prompt that are scored.
  void launch_scoring(const Stages& stages, const StepInputs& inputs);

  // The step's results instead of what `result` holds, when all its ops have completed.
  void collect(StepResult& result);

  // Of the step that was collected last; empty unless they are kept.
  [[nodiscard]] const std::vector<float>& kept_logits() const { return kept_logits_; }

 private:
  struct Pending {
    SequenceId sequence{};
    bool logprobs = false;
  };
  // Where the results of sampled rows lie in a piece of memory: tokens first, which every step
  // reads, then what else is known of them, which is brought to the host only when it is asked for.
  struct Results {
    int32_t* tokens = nullptr;              // [max_logit_rows]
    kernels::SampleResult* rows = nullptr;  // [max_logit_rows]
  };
  void add(const SampleSpec& spec);
  [[nodiscard]] Results results_in(const device::Memory& memory) const;

  void launch_part(const Rows& part, int64_t first_row, int64_t first_result, bool greedy);
  template <typename T>
  void launch_copy(T* to, const T* from, int64_t count) {
    place_.device.launch(place_.stream,
                         device::CopyOp{to, from, count * static_cast<int64_t>(sizeof(T))});
  }
  void launch_copy_of_logits(int64_t rows);
  void take_kept_logits();

  const model::ModelConfig& config_;
  const model::Weights& weights_;
  const ExecutorLimits limits_;
  const Place place_;
  std::unique_ptr<device::Memory> logits_;
  std::unique_ptr<device::Memory> device_results_;
  std::unique_ptr<device::Memory> host_results_;
  std::unique_ptr<device::Memory> host_scored_;
  std::unique_ptr<device::Memory> host_logits_;  // only when logits are kept

  std::vector<Pending> pending_;  // of the step in flight, in the order of its rows
  size_t residents_ = 0;          // of these
  int32_t launched_ = 0;          // of these, whose sampling is queued
  bool logprobs_asked_ = false;   // by one of these
  bool draws_ = false;            // of these, any at a temperature above 0
  int32_t scored_count_ = 0;
  bool logits_copied_ = false;  // the step in flight keeps its logits
  std::vector<float> kept_logits_;
};

}  // namespace tandem
