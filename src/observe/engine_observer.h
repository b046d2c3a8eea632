// Receives telemetry from an engine. Called on the engine thread; must be quick.
#pragma once

#include "observe/records.h"

namespace tandem::observe {

class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  virtual void on_step(const StepRecord& record) = 0;
  virtual void on_gauges(const EngineGauges& gauges) = 0;    // after every advance
  virtual void on_request(const RequestRecord& record) = 0;  // once per ended choice
  // After every decision of admission; on the thread that asked.
  virtual void on_admission(const AdmissionRecord& /*record*/) {}
  // After every advance of an engine with two tiers.
  virtual void on_tiers(const TierRecord& /*record*/) {}
};

// Observes nothing.
class NullObserver final : public EngineObserver {
 public:
  void on_step(const StepRecord& /*record*/) override {}
  void on_gauges(const EngineGauges& /*gauges*/) override {}
  void on_request(const RequestRecord& /*record*/) override {}
};

// The default of an engine without an observer.
inline EngineObserver& no_observer() {
  static NullObserver observer;
  return observer;
}

}  // namespace tandem::observe
