// Sends a load to an engine in virtual time and keeps what comes back: the client's side of a
// simulation. One thread.
#pragma once

#include <memory>
#include <vector>

#include "base/virtual_time.h"
#include "loadgen/generator.h"
#include "loadgen/load.h"
#include "sim/engine_driver.h"

namespace tandem::sim {

class LoadRun final : public VirtualTime::Actor {
 public:
  // All must outlive it. The load's first moment is now.
  LoadRun(VirtualTime& time, EngineDriver& driver, const loadgen::Load& load, int32_t vocabulary);
  ~LoadRun() override;

  [[nodiscard]] bool over() const { return ended_ == std::ssize(load_.requests); }
  [[nodiscard]] int64_t arrived() const { return next_; }
  [[nodiscard]] int64_t ended() const { return ended_; }
  [[nodiscard]] Nanos now() const { return time_.now() - began_; }
  // Ends the load: what has not ended counts as interrupted.
  loadgen::RunResult take();

  void on_time(int64_t what) override;

 private:
  class Sink;
  void ask_next();
  void send(int64_t index);
  void take_event(const TokenEvent& event);
  [[nodiscard]] Request request_of(const loadgen::LoadRequest& planned) const;

  VirtualTime& time_;
  EngineDriver& driver_;
  const loadgen::Load& load_;
  const int32_t vocabulary_;
  const Nanos began_;
  std::vector<ServiceClass> classes_;  // by group
  std::shared_ptr<Sink> sink_;
  int64_t next_ = 0;
  int64_t ended_ = 0;
  loadgen::RunResult result_;
  bool taken_ = false;  // the result: nothing more counts
};

}  // namespace tandem::sim
