#include "jobs/line_order.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "plan/fcfs_order.h"

namespace tandem::jobs {

struct LineOrder::Entry : QueueEntry {
  KnownLine line;
  Batch* batch = nullptr;
  std::list<Entry>::iterator self;  // in the batch's list
};

// The batches whose lines are ordered together: a tenant's, or one.
struct LineOrder::Group {
  QueueEntry entry;    // of the order of groups
  bool waits = false;  // the entry is in it
  std::string tenant;
  std::unique_ptr<QueueOrder> lines;  // known lines; null: in the order of the file
  std::vector<Batch*> batches;
};

struct LineOrder::Batch {
  Group* group = nullptr;
  Nanos deadline{0};
  std::function<void()> wake;
  int32_t number = 0;
  int64_t ahead = 0;  // sequences that are submitted and unfinished
  bool reads_ahead = false;
  bool has_unread = true;
  std::list<Entry> known;
};

namespace {

std::unique_ptr<QueueOrder> make_order(const LineOrderOptions& options) {
  return options.make_order ? options.make_order() : fcfs_order(FcfsOrder::By::kArrival);
}

constexpr int32_t kLinesOfTurn = 32;  // that a batch is read ahead before others are

// Rises with the end of the window, then with the number of the line; blank lines count, so it may
// be large. Windows that end in 34 years are as those without an end.
RequestId rank_of(Nanos deadline, int64_t line) {
  constexpr int kLineBits = 33;
  constexpr int64_t kMaxSeconds = (int64_t{1} << 30) - 1;
  constexpr int64_t kMaxLine = (int64_t{1} << kLineBits) - 1;
  const int64_t seconds = std::clamp<int64_t>(
      std::chrono::duration_cast<std::chrono::seconds>(deadline).count(), 0, kMaxSeconds);
  return RequestId{(seconds << kLineBits) + std::min(line, kMaxLine)};
}

}  // namespace

LineOrder::LineOrder(LineOrderOptions options)
    : options_(std::move(options)),
      reads_prefixes_(make_order(options_)->reads_prefixes()),
      groups_(make_order(options_)) {
  CHECK(options_.block_tokens > 0, "blocks of {} tokens", options_.block_tokens);
}

LineOrder::~LineOrder() { CHECK(batches_ == 0, "{} batches have not left", batches_); }

LineOrder::Group& LineOrder::group_for(const std::string& tenant) {
  if (reads_prefixes_) {
    const auto found = std::ranges::find(all_groups_, tenant, &Group::tenant);
    if (found != all_groups_.end()) {
      return *found;
    }
  }
  Group& group = all_groups_.emplace_back();
  group.tenant = tenant;
  group.entry.service_class = ServiceClass::kBestEffort;
  group.entry.choice = joined_;
  if (reads_prefixes_) {
    group.lines = make_order(options_);
  }
  return group;
}

LineOrder::Batch& LineOrder::join(Terms terms) {
  const std::scoped_lock lock(mutex_);
  ++joined_;
  ++batches_;
  auto* batch = new Batch{.group = &group_for(terms.tenant),
                          .deadline = terms.deadline,
                          .wake = std::move(terms.wake),
                          .number = joined_,
                          .reads_ahead = reads_prefixes_,
                          .known = {}};
  batch->group->batches.push_back(batch);
  settle(*batch->group);
  return *batch;
}

// The place of the group among others, by the first of its batches that has lines to submit.
void LineOrder::settle(Group& group) {
  Nanos first = Nanos::max();
  bool has_lines = false;
  for (const Batch* batch : group.batches) {
    if (batch->has_unread || !batch->known.empty()) {
      has_lines = true;
      first = std::min(first, batch->deadline);
    }
  }
  if (group.waits && has_lines && group.entry.first_token_due == first) {
    return;
  }
  if (std::exchange(group.waits, has_lines)) {
    groups_->erase(group.entry);
  }
  if (has_lines) {
    group.entry.first_token_due = first;
    group.entry.request = rank_of(first, 0);
    groups_->insert(group.entry, {});
  }
}

// A large number of lines is forgotten in pieces: other runs do not wait for it.
void LineOrder::forget_lines(Batch& batch) {
  constexpr int kPiece = 256;
  bool more = true;
  while (more) {
    const std::scoped_lock lock(mutex_);
    for (int i = 0; i < kPiece && !batch.known.empty(); ++i) {
      batch.group->lines->erase(batch.known.front());
      batch.known.pop_front();
      --known_;
    }
    more = !batch.known.empty();
  }
}

void LineOrder::leave(Batch& batch) {
  const std::unique_ptr<Batch> owned(&batch);
  forget_lines(batch);
  const std::scoped_lock lock(mutex_);
  Group& group = *batch.group;
  std::erase(group.batches, &batch);
  --batches_;
  if (reader_ == &batch) {
    reader_ = nullptr;
  }
  settle(group);
  for (const Batch* other : group.batches) {
    other->wake();
  }
  if (group.batches.empty()) {
    all_groups_.remove_if([&group](const Group& each) { return &each == &group; });
  }
  changed_.notify_all();
}

int64_t LineOrder::max_ahead(Batch& batch, int64_t ahead) {
  const std::scoped_lock lock(mutex_);
  batch.ahead = ahead;
  const Group& group = *batch.group;
  int64_t room = options_.max_sequences_ahead;  // without what other groups have submitted
  for (const Group& other : all_groups_) {
    for (const Batch* each : other.batches) {
      room -= &other == &group ? 0 : each->ahead;
    }
  }
  int64_t of_group = std::max<int64_t>(
      1, options_.max_sequences_ahead * std::ssize(group.batches) / (2 * int64_t{batches_}));
  if (groups_->head(ServiceClass::kBestEffort) == &group.entry) {
    of_group = std::max(of_group, room);
  }
  if (std::ranges::any_of(group.batches, [](const Batch* each) { return each->reads_ahead; })) {
    of_group = std::max<int64_t>(1, of_group / 2);
  }
  for (const Batch* other : group.batches) {
    of_group -= other == &batch ? 0 : other->ahead;
  }
  return of_group;
}

LineOrder::Pick LineOrder::pick(Batch& batch) {
  if (!reads_prefixes_) {
    return {};
  }
  const std::scoped_lock lock(mutex_);
  QueueEntry* head = batch.group->lines->head(ServiceClass::kBestEffort);
  if (head == nullptr) {
    return {};
  }
  auto& entry = static_cast<Entry&>(*head);
  if (entry.batch != &batch) {
    entry.batch->wake();
    return {.line = {}, .others_turn = true};
  }
  Pick pick{.line = entry.line};
  batch.group->lines->erase(entry);
  batch.known.erase(entry.self);
  --known_;
  settle(*batch.group);
  if (known_ + 1 == options_.max_known_lines) {
    changed_.notify_all();
  }
  return pick;
}

void LineOrder::end_of_file(Batch& batch) {
  const std::scoped_lock lock(mutex_);
  batch.has_unread = false;
  settle(*batch.group);
}

int64_t LineOrder::known(const Batch& batch) const {
  const std::scoped_lock lock(mutex_);
  return std::ssize(batch.known);
}

int64_t LineOrder::known_lines() const {
  const std::scoped_lock lock(mutex_);
  return known_;
}

// ---------------------------------------------------------------- lines become known

// A batch reads some lines before it gives way: a change of threads for each line would cost time.
bool LineOrder::begin_line(Batch& batch, const std::atomic<bool>& stop) {
  constexpr Nanos kLookAgain = std::chrono::milliseconds(20);
  std::unique_lock lock(mutex_);
  readers_.insert(
      reader_ == &batch && lines_of_turn_ < kLinesOfTurn ? readers_.begin() : readers_.end(),
      &batch);
  while (!stop) {
    const bool full = known_ >= options_.max_known_lines;
    batch.reads_ahead = !full;
    if (!full && !line_is_read_ && readers_.front() == &batch) {
      readers_.pop_front();
      line_is_read_ = true;
      const bool turn_goes_on = reader_ == &batch && lines_of_turn_ < kLinesOfTurn;
      lines_of_turn_ = turn_goes_on ? lines_of_turn_ + 1 : 1;
      reader_ = &batch;
      return true;
    }
    changed_.wait_for(lock, kLookAgain);
  }
  readers_.remove(&batch);
  return false;
}

void LineOrder::end_line(Batch& batch, const KnownLine* line, std::span<const BlockHash> names) {
  const std::scoped_lock lock(mutex_);
  line_is_read_ = false;
  if (lines_of_turn_ == kLinesOfTurn) {
    changed_.notify_all();
  }
  if (line == nullptr) {
    return;
  }
  // A run that found no line to submit sleeps.
  const bool was_empty = batch.group->lines->size(ServiceClass::kBestEffort) == 0;
  insert(batch, *line, names);
  if (was_empty) {
    batch.wake();
  }
}

void LineOrder::insert(Batch& batch, const KnownLine& line, std::span<const BlockHash> names) {
  Entry& entry = batch.known.emplace_back();
  entry.self = std::prev(batch.known.end());
  entry.line = line;
  entry.batch = &batch;
  entry.id = SequenceId{line.place.number};
  entry.request = rank_of(batch.deadline, line.place.number);
  entry.choice = batch.number;
  entry.first_token_due = batch.deadline;
  entry.service_class = ServiceClass::kBestEffort;
  batch.group->lines->insert(entry, {.tenant = {}, .blocks = names});
  ++known_;
  settle(*batch.group);
}

void LineOrder::end_reading(Batch& batch) {
  const std::scoped_lock lock(mutex_);
  batch.reads_ahead = false;
  for (const Batch* each : batch.group->batches) {
    each->wake();
  }
  changed_.notify_all();
}

}  // namespace tandem::jobs
