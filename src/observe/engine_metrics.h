// The engine's metrics in Prometheus' text format: Tandem's own names (tandem_*) and, unless
// switched off, vLLM's (vllm:*) with the same types, labels and buckets. Only what is really
// measured is there. Record functions: engine thread; render: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "observe/engine_observer.h"

namespace tandem::observe {

enum class Predicted : uint8_t { kNo, kYes };
enum class Admits : uint8_t { kNo, kYes };

struct EngineMetricsOptions {
  std::string model_name;
  bool vllm_names = true;
  int32_t block_tokens = 0;  // for vllm:cache_config_info
  int64_t total_blocks = 0;
  int64_t host_blocks = 0;               // 0: one tier, whose metrics alone are published
  const Clock* clock = nullptr;          // for rates between two tiers; needed with host_blocks
  Predicted predicted = Predicted::kNo;  // whether steps are, so that their error is published
  Admits admission = Admits::kNo;        // whether there is one
};

class EngineMetrics final : public EngineObserver {
 public:
  explicit EngineMetrics(const EngineMetricsOptions& options);
  ~EngineMetrics() override;

  void on_step(const StepRecord& record) override;
  void on_gauges(const EngineGauges& gauges) override;
  void on_request(const RequestRecord& record) override;
  void on_tiers(const TierRecord& record) override;
  void on_admission(const AdmissionRecord& record) override;
  void on_pace(const PaceRecord& record);       // any thread; a paced emulated accelerator
  void on_rejected(const std::string& reason);  // a request that was never accepted; any thread

  [[nodiscard]] std::string render() const;
  // Tandem's own series as metrics_json() writes them.
  [[nodiscard]] std::string json() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::observe
