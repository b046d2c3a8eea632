// Brings several files of one commit into the cache, some at a time.
// Threads: run() starts its own and returns when they have ended; hooks are called on the caller's.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/cache.h"
#include "hub/file_list.h"
#include "hub/model_name.h"
#include "hub/options.h"
#include "hub/pull.h"

namespace tandem::hub {

class Downloads {
 public:
  // The references must outlive it.
  Downloads(const ModelName& name, const HubOptions& options, const PullHooks& hooks,
            const Cache& cache, std::string commit);

  // Needs files whose size and checksum are known, each checksum once. Progress adds to that of
  // the run before.
  Status run(const std::vector<RemoteFile>& files);

  [[nodiscard]] int64_t total_bytes() const { return total_; }

 private:
  void work(const std::vector<RemoteFile>& files);
  void note(const std::string& line);
  void watch();
  void report();

  const ModelName& name_;
  const HubOptions& options_;
  const PullHooks& hooks_;
  const Cache& cache_;
  const std::string commit_;
  int64_t total_ = 0;
  std::atomic<int64_t> done_{0};
  std::atomic<size_t> next_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t working_ = 0;              // guarded by mutex_
  std::optional<Error> failure_;    // likewise, until the threads have ended
  std::vector<std::string> notes_;  // likewise
};

}  // namespace tandem::hub
