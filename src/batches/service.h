// Files and batches as clients see them: OpenAI's /v1/files and /v1/batches, without HTTP. All that
// is answered is on the disk before. An owner (text; the API says from which key) sees its own
// objects; those of others do not exist. Calls wait for the disk, so they do not belong on an I/O
// thread; metrics_text() does not wait.
//
// Time: seconds since 1970 as the machine said them at the start, and what a steady clock has
// counted since. A clock that is set while the server runs neither expires batches nor removes
// files.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/result.h"
#include "batches/batch_options.h"
#include "batches/data_folder.h"
#include "batches/files.h"
#include "batches/runner.h"
#include "batches/store.h"

namespace tandem::batches {

class Service {
 public:
  // Needs a data folder. Requests are answered from here on; batches wait for start(). `clock` must
  // outlive the service. Errors name the folder or the database, and what to do.
  static Result<std::unique_ptr<Service>> open(BatchOptions options, const Clock& clock,
                                               int64_t unix_seconds);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Batches run from here on, those from before first. `models` must outlive stop().
  void start(const openai::ModelDirectory& models, RunnerOptions options);
  // Batches stop soon; does not wait.
  void request_stop();
  // No line is submitted any more. Batches go on after the next start of the server.
  void stop();

  // Answers as JSON.
  Result<std::string> create_batch(std::string_view owner, std::string_view body);
  Result<std::string> batch(std::string_view owner, std::string_view id);
  Result<std::string> cancel_batch(std::string_view owner, std::string_view id);
  Result<std::string> batches(std::string_view owner, std::string_view query);
  Result<std::string> file(std::string_view owner, std::string_view id);
  Result<std::string> files(std::string_view owner, std::string_view query);
  Result<std::string> delete_file(std::string_view owner, std::string_view id);

  Result<std::unique_ptr<Upload>> begin_upload(std::string_view owner,
                                               std::string_view content_type) {
    return files_->begin_upload(owner, content_type);
  }
  Result<ContentReader> content(std::string_view owner, std::string_view id) {
    return files_->content(owner, id);
  }
  [[nodiscard]] Error too_large() const { return files_->too_large(); }
  [[nodiscard]] const BatchOptions& options() const { return options_; }

  // In Prometheus' format.
  [[nodiscard]] std::string metrics_text() const;

 private:
  Service(BatchOptions options, const Clock& clock, int64_t unix_seconds, DataFolder folder);
  Status open_store();
  Result<FileObject> input_of(std::string_view owner, std::string_view file_id) const;
  [[nodiscard]] std::string render(BatchObject batch) const;
  [[nodiscard]] std::shared_ptr<Runner> runner() const;
  [[nodiscard]] int64_t now() const;

  const BatchOptions options_;
  const Clock& clock_;
  const std::pair<int64_t, Nanos> began_;  // seconds since 1970, and the clock then
  const DataFolder folder_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Files> files_;
  mutable std::mutex mutex_;        // guards what follows, not what it points to
  std::shared_ptr<Runner> runner_;  // between start() and stop()
};

}  // namespace tandem::batches
