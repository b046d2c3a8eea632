// Compares what a replayed engine does with a record: makes the record's plan and result lines
// again (record_lines.h) and names the first field that differs. The policy's binder is asked what
// it was asked when the record was made, and its answers are compared too: visitors themselves come
// when the record says so, so a replay's own binds are others.
//
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/recorder.h"

namespace tandem {

class ReplayComparer final : public Recorder {
 public:
  // `binder`, which may be null on one tier, is not the executor's. `last_stage`: of the model.
  ReplayComparer(std::unique_ptr<Binder> binder, int32_t last_stage, int digest_version)
      : binder_(std::move(binder)), last_stage_(last_stage), digest_version_(digest_version) {}

  // The next result is that of this recorded line: asks the binder what the record says that it was
  // asked. Throws nlohmann::json::exception where the line is broken.
  Status expect_binds(const nlohmann::json& result);

  // What the engine did since the last call against the record's lines; empty: the same. Fields
  // that records of earlier builds lack are not compared there.
  [[nodiscard]] std::string difference(const std::vector<nlohmann::json>& expected);

  void arrival(int64_t, const Arrival&, uint64_t) override {}
  void refusal(int64_t, const AdmissionAsk&, const AdmissionVerdict&) override {}
  void cancel(int64_t, RequestId) override {}
  void stop(int64_t, RequestId, int32_t) override {}
  void tiers(int64_t, const TierEvents&) override {}
  void bind(const BindView&, const BindDecision&) override {}
  void plan(const SystemView& view, const StepPlan& plan) override;
  void result(const StepResult& result, const StepTimes& times) override;

 private:
  const std::unique_ptr<Binder> binder_;
  const int32_t last_stage_;
  const int digest_version_;
  std::string binds_;               // entries of the next result
  std::vector<std::string> lines_;  // since the last call of difference
};

}  // namespace tandem
