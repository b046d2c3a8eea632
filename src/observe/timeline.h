// What ran when: spans on tracks (a stream, a worker, the engine's binds), to be looked at in
// Perfetto or chrome://tracing. A track keeps its last spans in a ring of fixed size, so recording
// may stay on for as long as a server runs, and nothing is allocated after a track was added. Who
// is given no track records nothing and pays nothing.
//
// Threads: a track is written by one thread; add_track, and the trace, from any at any time.
// Nothing here orders the threads that record, so a race detector still sees what they forget.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace tandem::observe {

// Times of the machine's monotonic clock (SteadyClock). Both texts are string literals.
struct Span {
  const char* name = "";
  Nanos begin{0};
  Nanos end{0};
  const char* detail = nullptr;  // what `value` counts: "rows", "bytes"; null: nothing
  int64_t value = 0;
};

class Track {
 public:
  Track(std::string group, std::string name, int64_t capacity);

  // The track's one writer.
  void add(const Span& span);

  [[nodiscard]] const std::string& group() const { return group_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  // The spans still held, oldest first. Any thread, also while the track is written: spans that are
  // overwritten meanwhile are left out.
  [[nodiscard]] std::vector<Span> spans() const;

 private:
  struct Slot {
    std::atomic<const char*> name{""};
    std::atomic<int64_t> begin{0};
    std::atomic<int64_t> end{0};
    std::atomic<const char*> detail{nullptr};
    std::atomic<int64_t> value{0};
  };
  const std::string group_;
  const std::string name_;
  const int64_t capacity_;
  const std::unique_ptr<Slot[]> slots_;
  std::atomic<int64_t> begun_{0};  // spans that the writer has begun to write
  std::atomic<int64_t> added_{0};  // and those complete
};

class Timeline {
 public:
  explicit Timeline(int64_t spans_per_track);

  // Tracks of one group ("accelerator", "host workers", "engine") stand together. Lives as long as
  // the timeline.
  Track& add_track(const std::string& group, const std::string& name);

  // JSON of the Chrome trace format: a process for each group, a thread for each track.
  [[nodiscard]] std::string chrome_trace() const;
  [[nodiscard]] Status write_chrome_trace(const std::filesystem::path& file) const;

 private:
  const int64_t spans_per_track_;
  mutable std::mutex mutex_;  // guards what follows, not what the tracks hold
  std::vector<std::unique_ptr<Track>> tracks_;
};

}  // namespace tandem::observe
