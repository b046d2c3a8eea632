#include "piggyback/workers/attention_queue.h"

#include <algorithm>
#include <thread>

#include "base/check.h"

namespace tandem::piggyback {

void AttentionQueue::List::push(AttentionJob* job) {
  job->next = nullptr;
  (last != nullptr ? last->next : first) = job;
  last = job;
}

void AttentionQueue::List::push_first(AttentionJob* job) {
  job->next = first;
  last = last != nullptr ? last : job;
  first = job;
}

AttentionJob* AttentionQueue::List::pop() {
  AttentionJob* job = first;
  first = job->next;
  last = first != nullptr ? last : nullptr;
  return job;
}

void AttentionQueue::submit(std::span<const HopTask> tasks) {
  int64_t sleepers = 0;
  {
    const std::lock_guard lock(mutex_);
    sleepers = sleepers_;
    waiting_.insert(waiting_.end(), tasks.begin(), tasks.end());
  }
  wake(static_cast<int64_t>(tasks.size()), sleepers);
}

// Wakes workers that slept when the work came; a worker that falls asleep later looks for work
// first.
void AttentionQueue::wake(int64_t pieces, int64_t sleepers) {
  changes_.fetch_add(1, std::memory_order_release);
  if (sleepers > pieces) {
    for (int64_t i = 0; i < pieces; ++i) {
      work_.notify_one();
    }
  } else if (sleepers > 0) {
    work_.notify_all();
  }
}

bool AttentionQueue::take_now(AttentionWork& work) {
  if (frozen_) {
    return false;
  }
  if (cut_.first != nullptr) {
    AttentionJob* job = cut_.first;
    work = {job, job->next_piece++};
    if (job->next_piece == static_cast<int32_t>(job->plan.tasks.size())) {
      cut_.pop();
    }
    return true;
  }
  if (waiting_now() > 0) {
    work = {begin_next(), -1};
    return true;
  }
  return false;
}

AttentionJob* AttentionQueue::begin_next() {
  if (unused_.first == nullptr) {
    jobs_.push_back(std::make_unique<AttentionJob>());
    unused_.push_first(jobs_.back().get());
  }
  AttentionJob* job = unused_.pop();
  job->task = waiting_[next_waiting_++];
  job->gate.open();
  job->failed = false;
  job->active = true;
  // Begun tasks are erased once they are the greater part, so that a queue that is never empty
  // stays about as long as its tasks.
  if (2 * next_waiting_ > waiting_.size()) {
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(next_waiting_));
    next_waiting_ = 0;
  }
  return job;
}

bool AttentionQueue::take(AttentionWork& work) {
  while (true) {
    const uint32_t seen = changes_.load(std::memory_order_acquire);
    {
      const std::lock_guard lock(mutex_);
      if (stop_ || take_now(work)) {
        return !stop_;
      }
    }
    if (spin_ > Nanos{0}) {
      const Nanos end = clock_.now() + spin_;
      while (changes_.load(std::memory_order_acquire) == seen && clock_.now() < end) {
        std::this_thread::yield();
      }
      if (changes_.load(std::memory_order_acquire) != seen) {
        continue;
      }
    }
    std::unique_lock lock(mutex_);
    ++sleepers_;
    bool taken = false;
    work_.wait(lock, [&] { return stop_ || (taken = take_now(work)); });
    --sleepers_;
    return taken && !stop_;
  }
}

void AttentionQueue::take_room(AttentionJob& job) {
  const std::lock_guard lock(mutex_);
  if (!rooms_.empty()) {
    job.partials = rooms_.back();
    rooms_.pop_back();
  }
}

void AttentionQueue::publish(AttentionJob& job) {
  const auto pieces = static_cast<int32_t>(job.plan.tasks.size());
  CHECK(pieces > 0, "a job of no pieces");
  int64_t sleepers = 0;
  {
    const std::lock_guard lock(mutex_);
    sleepers = sleepers_;
    job.next_piece = 0;
    job.unfinished_pieces = pieces;
    cut_.push(&job);
  }
  wake(pieces - 1, sleepers);
}

bool AttentionQueue::piece_done(AttentionJob& job, bool failed) {
  const std::lock_guard lock(mutex_);
  job.failed = job.failed || failed;
  return --job.unfinished_pieces == 0;
}

bool AttentionQueue::any_failed(AttentionJob& job) const {
  const std::lock_guard lock(mutex_);
  return job.failed;
}

void AttentionQueue::answer(const HopAnswer& answer, int32_t times) {
  AnswerNotice notice{.at = answer.ended};
  {
    const std::lock_guard lock(mutex_);
    if (stop_) {
      return;
    }
    answers_.insert(answers_.end(), static_cast<size_t>(times), answer);
    notice.more_follow = !answer.failed && waiting_now() > 0;
  }
  notify(notice);
}

void AttentionQueue::notify(const AnswerNotice& notice) {
  const std::shared_lock lock(listener_mutex_);
  if (listener_) {
    listener_(notice);
  }
}

void AttentionQueue::give_back(AttentionJob& job) {
  const std::lock_guard lock(mutex_);
  if (job.partials != nullptr) {
    rooms_.push_back(job.partials);
    job.partials = nullptr;
  }
  job.active = false;
  unused_.push_first(&job);
}

void AttentionQueue::take_answers(std::vector<HopAnswer>& answers) {
  const std::lock_guard lock(mutex_);
  answers.insert(answers.end(), answers_.begin(), answers_.end());
  answers_.clear();
}

void AttentionQueue::withdraw(HopId hop, int32_t attempt) {
  const auto is_it = [&](const HopTask& task) {
    return task.hop == hop && task.attempt == attempt;
  };
  {
    const std::lock_guard lock(mutex_);
    const auto begin = waiting_.begin() + static_cast<std::ptrdiff_t>(next_waiting_);
    const auto task = std::find_if(begin, waiting_.end(), is_it);
    int32_t answers = 0;
    if (task != waiting_.end()) {
      waiting_.erase(task);
      answers = 1;
    } else {
      for (const std::unique_ptr<AttentionJob>& job : jobs_) {
        answers += job->active && is_it(job->task) && job->gate.withdraw() ? 1 : 0;
      }
    }
    if (stop_ || answers == 0) {
      return;
    }
    answers_.insert(answers_.end(), static_cast<size_t>(answers),
                    {.hop = hop, .attempt = attempt, .failed = true});
  }
  notify({.at = clock_.now()});
}

void AttentionQueue::set_listener(AnswerListener listener) {
  const std::unique_lock lock(listener_mutex_);
  listener_ = std::move(listener);
}

void AttentionQueue::freeze() {
  const std::lock_guard lock(mutex_);
  frozen_ = true;
}

void AttentionQueue::thaw() {
  {
    const std::lock_guard lock(mutex_);
    frozen_ = false;
  }
  changes_.fetch_add(1, std::memory_order_release);
  work_.notify_all();
}

void AttentionQueue::stop() {
  set_listener(nullptr);
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    for (const std::unique_ptr<AttentionJob>& job : jobs_) {
      job->gate.withdraw();
    }
  }
  changes_.fetch_add(1, std::memory_order_release);
  work_.notify_all();
}

void AttentionQueue::exited() {
  {
    const std::lock_guard lock(mutex_);
    ++exited_;
  }
  exits_.notify_all();
}

int32_t AttentionQueue::wait_for_exits(int32_t workers, Nanos limit) {
  std::unique_lock lock(mutex_);
  exits_.wait_for(lock, limit, [&] { return exited_ == workers; });
  return exited_;
}

int64_t AttentionQueue::in_hand() const {
  const std::lock_guard lock(mutex_);
  return waiting_now() + std::ranges::count_if(jobs_, [](const auto& job) { return job->active; });
}

int64_t AttentionQueue::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_now();
}

}  // namespace tandem::piggyback
