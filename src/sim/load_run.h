// Sends a load to one engine or several in virtual time and keeps what comes back: the client's
// side of a simulation. One thread.
#pragma once

#include <memory>
#include <vector>

#include "base/virtual_time.h"
#include "loadgen/generator.h"
#include "loadgen/load.h"
#include "sim/engine_choice.h"
#include "sim/engine_driver.h"

namespace tandem::sim {

class LoadRun final : public VirtualTime::Actor {
 public:
  struct Target {
    EngineDriver* driver = nullptr;
    int32_t vocabulary = 0;
  };

  // All must outlive it. `targets`: the engines of `choice`. With several, the model of a record is
  // the number of its engine. The load's first moment is now.
  LoadRun(VirtualTime& time, std::vector<Target> targets, EngineChoice choice,
          const loadgen::Load& load);
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
  // Offers the request to the engines that serve it, the best engine first, until one accepts it.
  void send(int64_t index);
  // The engines that may serve a planned request, the best engine first.
  [[nodiscard]] std::vector<size_t> engines_for(const loadgen::RequestRecord& record) const;
  void refuse(loadgen::RequestRecord& record, const Refusal& refused);
  void take_event(const TokenEvent& event);
  [[nodiscard]] Request request_of(const loadgen::LoadRequest& planned, int32_t vocabulary) const;
  // The engine that a request was offered to last, or that refused it first if all engines refuse.
  [[nodiscard]] size_t engine_of(const loadgen::RequestRecord& record) const {
    return targets_.size() > 1 ? static_cast<size_t>(record.model) : 0;
  }
  void set_engine(loadgen::RequestRecord& record, size_t engine) const;

  VirtualTime& time_;
  const std::vector<Target> targets_;
  EngineChoice choice_;
  const loadgen::Load& load_;
  const Nanos began_;
  std::vector<ServiceClass> classes_;  // by group
  std::shared_ptr<Sink> sink_;
  int64_t next_ = 0;
  int64_t ended_ = 0;
  loadgen::RunResult result_;
  bool taken_ = false;  // the result: nothing more counts
};

}  // namespace tandem::sim
