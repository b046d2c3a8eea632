// Gives a run the unanswered lines of its batch's input, in the order of a LineOrder. If that order
// reads prefixes, a thread reads the file ahead: it renders and tokenizes each line once, and keeps
// the names of its leading blocks and its place in the file, but no text. A line that is not a
// valid request is kept without names and so comes early; its error is found when the line is read
// again. While no line is known, lines come in the order of the file. Nothing of this is on the
// disk: the next run reads ahead anew.
//
// Threads: the run's, for all functions. A thread of its own reads ahead, at a lower priority.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "jobs/batch_input.h"
#include "jobs/batch_output.h"
#include "jobs/line_order.h"
#include "openai/batch_line.h"
#include "openai/model_directory.h"

namespace tandem::jobs {

struct FedLine {
  openai::BatchLineId id;
  bool too_long = false;
  bool duplicate = false;    // a line before it in the file has its custom_id
  openai::BatchLine parsed;  // unless it is too long
};

class LineFeed {
 public:
  // Borrows everything. Needs an input at its beginning, which nothing else reads meanwhile.
  LineFeed(BatchInput& input, const WrittenLines& written, const openai::ModelDirectory& models,
           LineOrder& order, LineOrder::Terms terms);
  ~LineFeed();  // stops reading ahead, which may take until the line that is read is tokenized
  LineFeed(const LineFeed&) = delete;
  LineFeed& operator=(const LineFeed&) = delete;

  // Begins to read ahead if the order wants that and it has not begun. Where the system gives no
  // thread, all lines come in the order of the file.
  void read_ahead();
  // As of LineOrder.
  [[nodiscard]] int64_t max_ahead(int64_t ahead) { return order_.max_ahead(batch_, ahead); }
  // The next line; nullopt: there is none now. Errors: the file cannot be read.
  [[nodiscard]] Result<std::optional<FedLine>> next();
  // There will be no line any more.
  [[nodiscard]] bool exhausted() const;

 private:
  struct ReadLine {
    LinePlace place;
    FedLine line;
  };

  Result<std::optional<ReadLine>> read_next();
  FedLine parse(const InputLine& line) const;
  [[nodiscard]] std::vector<BlockHash> names_of(const FedLine& line) const;
  Result<bool> read_one_ahead();
  void run_ahead();

  BatchInput& input_;  // next() needs mutex_
  const WrittenLines& written_;
  const openai::ModelDirectory& models_;
  LineOrder& order_;
  const std::string tenant_;
  LineOrder::Batch& batch_;

  mutable std::mutex mutex_;  // guards the fields below, up to failure_
  std::unordered_set<std::string> custom_ids_;
  bool ended_ = false;            // the file was read to its end
  bool line_is_pending_ = false;  // read ahead, and not in the order yet
  Status failure_;                // of reading ahead

  std::atomic<bool> stopping_{false};
  bool read_ahead_was_asked_ = false;
  std::thread thread_;
};

}  // namespace tandem::jobs
