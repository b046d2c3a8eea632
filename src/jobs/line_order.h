// Which line of which running batch is submitted next, and how many sequences may be submitted. One
// object for all runs of a server, with the order that the server's policy gives its own queue.
//
// Batches are ordered as the policy orders requests whose targets are the ends of the windows;
// first come, first served means by the end of the window. If the policy's order reads prefixes, it
// also orders the lines of all batches of a tenant together, as far as they are known: up to
// `max_known_lines` over all batches. Lines become known in the background, in the order of their
// file (jobs/line_feed.h). With other orders the lines of a batch follow each other as in its file,
// and nothing is kept of them here.
//
// Half of the places are split evenly over the batches, so that no batch starves. The other half
// goes to the first batch that has lines to submit. If the lines of a tenant are ordered together,
// its batches share their places; while lines of it are becoming known, half of these stay free.
//
// Threads: any. A run may be woken by the thread of another run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/block_hash.h"
#include "base/clock.h"
#include "jobs/batch_input.h"
#include "plan/queue_order.h"

namespace tandem::jobs {

struct LineOrderOptions {
  // Submitted and unfinished, of all runs; enough to fill the engine's steps. A run that begins may
  // exceed it by half at first.
  int64_t max_sequences_ahead = 512;
  // As the policy's. Absent: first come, first served.
  std::function<std::unique_ptr<QueueOrder>()> make_order;
  int32_t block_tokens = 32;  // of the KV blocks that prefixes are named by
  int64_t max_known_lines = 100'000;
};

struct KnownLine {
  LinePlace place;
  bool duplicate = false;  // an earlier line has its custom_id
};

class LineOrder {
 public:
  // What a run says of its batch.
  struct Terms {
    std::string tenant;             // its API key; batches of one tenant share prefixes
    Nanos deadline = Nanos::max();  // the end of its window
    std::function<void()> wake;     // there may be a line for it; must not call the order
  };
  struct Batch;  // of one run
  // The next line of a batch.
  struct Pick {
    std::optional<KnownLine> line;  // absent: no known line of the batch is next
    bool others_turn = false;       // a line of another batch of the same tenant is next
  };

  explicit LineOrder(LineOrderOptions options);
  ~LineOrder();  // no batch may be in it
  LineOrder(const LineOrder&) = delete;
  LineOrder& operator=(const LineOrder&) = delete;

  // True: lines are to be made known.
  [[nodiscard]] bool reads_prefixes() const { return reads_prefixes_; }
  [[nodiscard]] int32_t block_tokens() const { return options_.block_tokens; }

  // The batch has lines to submit until end_of_file(), and is read ahead until end_reading().
  [[nodiscard]] Batch& join(Terms terms);
  void leave(Batch& batch);

  // How many sequences of the batch may be submitted, of which `ahead` are.
  int64_t max_ahead(Batch& batch, int64_t ahead);
  // Takes the line out. Asked when the batch may submit one.
  Pick pick(Batch& batch);
  // All lines were read once: only known lines are left.
  void end_of_file(Batch& batch);
  [[nodiscard]] int64_t known(const Batch& batch) const;
  [[nodiscard]] int64_t known_lines() const;  // of all batches

  // For the thread that makes lines known. Waits until there is a place for a line; one line is
  // read at a time, and several batches are read ahead in turn. False: `stop` was set.
  bool begin_line(Batch& batch, const std::atomic<bool>& stop);
  // The end of that. `line` null: there was none.
  void end_line(Batch& batch, const KnownLine* line, std::span<const BlockHash> names);
  void end_reading(Batch& batch);

 private:
  struct Entry;
  struct Group;

  Group& group_for(const std::string& tenant);
  void settle(Group& group);
  void insert(Batch& batch, const KnownLine& line, std::span<const BlockHash> names);
  void forget_lines(Batch& batch);

  const LineOrderOptions options_;
  const bool reads_prefixes_;
  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::unique_ptr<QueueOrder> groups_;  // groups that have lines to submit
  std::list<Group> all_groups_;
  int32_t batches_ = 0;
  int32_t joined_ = 0;  // so far
  int64_t known_ = 0;
  bool line_is_read_ = false;        // between begin_line() and end_line()
  std::list<const Batch*> readers_;  // wait in begin_line(); the first is next
  const Batch* reader_ = nullptr;    // has the turn; may have left it
  int32_t lines_of_turn_ = 0;
};

}  // namespace tandem::jobs
