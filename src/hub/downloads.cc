#include "hub/downloads.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "hub/client.h"
#include "hub/download.h"

namespace tandem::hub {
namespace {

constexpr std::chrono::milliseconds kReportEvery(100);

// Threads that are stopped and joined however their scope ends.
class JoinedThreads {
 public:
  explicit JoinedThreads(std::atomic<bool>& stop) : stop_(stop) {}
  ~JoinedThreads() {
    stop_ = true;
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  JoinedThreads(const JoinedThreads&) = delete;
  JoinedThreads& operator=(const JoinedThreads&) = delete;

  template <class Work>
  void start(const Work& work) {
    threads_.emplace_back(work);
  }

 private:
  std::atomic<bool>& stop_;
  std::vector<std::thread> threads_;
};

}  // namespace

Downloads::Downloads(const ModelName& name, const HubOptions& options, const PullHooks& hooks,
                     const Cache& cache, std::string commit)
    : name_(name), options_(options), hooks_(hooks), cache_(cache), commit_(std::move(commit)) {}

Status Downloads::run(const std::vector<RemoteFile>& files) {
  for (const RemoteFile& file : files) {
    total_ += *file.size;
  }
  next_ = 0;
  stop_ = false;
  working_ = std::min<size_t>(static_cast<size_t>(options_.connections), files.size());
  {
    JoinedThreads threads(stop_);
    for (size_t i = working_; i > 0; --i) {
      threads.start([this, &files] { work(files); });
    }
    watch();
  }
  report();
  return failure_ ? Status(*failure_) : Status();
}

void Downloads::work(const std::vector<RemoteFile>& files) {
  Client client(options_, name_,
                {.stop = [this] { return stop_.load(); },
                 .on_note = [this](const std::string& line) { note(line); },
                 .on_bytes = [this](int64_t bytes) { done_ += bytes; }});
  for (size_t i = next_++; i < files.size() && !stop_; i = next_++) {
    if (const Status done = download(client, cache_, commit_, files[i]); !done.ok()) {
      const std::lock_guard guard(mutex_);
      // The first error is the cause; the others were stopped by it.
      failure_ = failure_ ? failure_ : std::optional(done.error());
      stop_ = true;
    }
  }
  const std::lock_guard guard(mutex_);
  --working_;
  changed_.notify_all();
}

void Downloads::note(const std::string& line) {
  const std::lock_guard guard(mutex_);
  notes_.push_back(line);
}

// On the caller's thread until all threads have ended.
void Downloads::watch() {
  std::unique_lock lock(mutex_);
  while (working_ > 0) {
    changed_.wait_for(lock, kReportEvery);
    lock.unlock();
    report();
    if (hooks_.stop()) {
      stop_ = true;
    }
    lock.lock();
    if (stop_ && !failure_) {
      failure_ = stopped_error();
    }
  }
}

void Downloads::report() {
  std::vector<std::string> notes;
  {
    const std::lock_guard guard(mutex_);
    notes = std::exchange(notes_, {});
  }
  for (const std::string& line : notes) {
    hooks_.on_note(line);
  }
  hooks_.on_progress(done_, total_);
}

}  // namespace tandem::hub
