// A run written down, one JSON object a line: the effective configuration, then every input with
// the step before which it was absorbed, every plan with the digest of what the policy saw, every
// result with the binds of its step. Holds prompts and answers: treat it as private.
//
// Bounded: at the limit, or when the disk cannot keep up, recording ends with a line that says so;
// serving goes on. Threads: the recorder's functions on the engine thread; writing on a thread of
// its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/result.h"
#include "engine/recorder.h"

namespace tandem {

class RecordFile final : public Recorder {
 public:
  // Whether create() could make the file. Makes nothing.
  static Status check(const std::string& path);
  // Refuses to overwrite a file. `config` is a JSON object.
  static Result<std::unique_ptr<Recorder>> create(const std::string& path, int64_t limit_bytes,
                                                  const std::string& config);
  ~RecordFile() override;  // writes what is left

  void arrival(int64_t step, const Arrival& arrival, uint64_t seed) override;
  void refusal(int64_t step, const AdmissionAsk& ask, const AdmissionVerdict& verdict) override;
  void cancel(int64_t step, RequestId request) override;
  void stop(int64_t step, RequestId request, int32_t choice) override;
  void tiers(int64_t step, const TierEvents& events) override;
  void plan(const SystemView& view, const StepPlan& plan) override;
  void bind(const BindView& view, const BindDecision& decision) override;
  void result(const StepResult& result, const StepTimes& times) override;

 private:
  RecordFile(std::FILE* file, int64_t limit_bytes);
  void add_line(std::string line);
  void write_loop();

  std::FILE* file_;
  const int64_t limit_bytes_;
  int64_t accepted_bytes_ = 0;
  bool ended_ = false;  // nothing more is taken
  std::string binds_;   // of the step in flight

  std::mutex mutex_;
  std::condition_variable wake_;
  std::string pending_;        // guarded by mutex_
  bool closing_ = false;       // guarded by mutex_
  bool write_failed_ = false;  // guarded by mutex_
  std::thread writer_;
};

}  // namespace tandem
