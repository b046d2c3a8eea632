#include "device/sim/sim_stream.h"

#include <algorithm>

#include "base/check.h"
#include "device/emulated/cost_model.h"

namespace tandem::device {

SimStream::~SimStream() {
  if (bandwidth_ != nullptr) {
    bandwidth_->remove_user(user_);
  }
  time_.forget(*this);
}

void SimStream::share(SharedBandwidth& bandwidth) {
  bandwidth_ = &bandwidth;
  user_ = bandwidth.add_user({.done = [this](int64_t, Nanos began) { finish_shared(began); },
                              .worked =
                                  [this](Nanos begin, Nanos end) {
                                    if (watcher_ != nullptr && *watcher_) {
                                      (*watcher_)(begin, end);
                                    }
                                  }});
}

void SimStream::run(Nanos duration, Nanos memory) {
  ++ops_;
  add({.kind = bandwidth_ != nullptr ? Kind::kShared : Kind::kRun,
       .issued = time_.now(),
       .duration = duration,
       .memory = memory});
}

// The op at the head of the queue, which has been submitted.
void SimStream::finish_shared(Nanos began) {
  free_at_ = time_.now();
  busy_ += free_at_ - began;
  queue_.pop_front();
  go_on();
}

void SimStream::carry(SimLink& link, int64_t bytes) {
  ++ops_;
  add({.kind = Kind::kCarry, .issued = time_.now(), .number = bytes, .link = &link});
}

int64_t SimStream::record(bool quiet) {
  ++recorded_;
  add({.kind = quiet ? Kind::kQuietRecord : Kind::kRecord,
       .issued = time_.now(),
       .number = recorded_});
  return recorded_;
}

void SimStream::wait(SimStream& other, int64_t event) {
  if (!other.is_done(event)) {
    add({.kind = Kind::kWait, .issued = time_.now(), .number = event, .other = &other});
  }
}

void SimStream::add(const Entry& entry) {
  if (!queue_.empty() || !settle(entry)) {
    queue_.push_back(entry);
  }
}

bool SimStream::settle(const Entry& entry) {
  const Nanos ready = std::max(free_at_, entry.issued);
  switch (entry.kind) {
    case Kind::kRun:
      free_at_ = ready + entry.duration;
      busy_ += entry.duration;
      if (watcher_ != nullptr && *watcher_) {
        (*watcher_)(ready, free_at_);
      }
      return true;
    case Kind::kShared:
      bandwidth_->submit(user_, {.ready = ready, .alone = entry.duration, .memory = entry.memory});
      return false;
    case Kind::kCarry: {
      if (ready > time_.now()) {
        time_.ask(ready, *this, kGoOn);
        return false;
      }
      const Nanos transfer = link_transfer_time(entry.link->bytes_per_second, entry.number);
      free_at_ = (kind_ == StreamKind::kCompute ? entry.link->share(ready, transfer)
                                                : entry.link->queue(ready, transfer)) +
                 entry.link->latency;
      entry.link->bytes += entry.number;
      busy_ += free_at_ - ready;
      return true;
    }
    case Kind::kRecord:
    case Kind::kQuietRecord:
      free_at_ = ready;
      pending_.push_back(entry.kind == Kind::kQuietRecord);
      time_.ask(ready, *this, entry.number);
      return true;
    case Kind::kWait:
      if (!entry.other->is_done(entry.number)) {
        entry.other->waiting_.emplace_back(entry.number, this);
        return false;
      }
      free_at_ = std::max(ready, time_.now());
      return true;
  }
  return true;
}

void SimStream::go_on() {
  while (!queue_.empty()) {
    const Entry entry = queue_.front();
    if (!settle(entry)) {
      return;
    }
    queue_.pop_front();
  }
}

void SimStream::on_time(int64_t what) {
  if (what == kGoOn) {
    go_on();
    return;
  }
  CHECK(what == done_ + 1 && !pending_.empty(), "event {} after {}", what, done_);
  done_ = what;
  const bool quiet = pending_.front();
  pending_.pop_front();
  wake_waiting();
  if (!quiet && listener_ != nullptr && *listener_) {
    (*listener_)();
  }
}

void SimStream::wake_waiting() {
  std::vector<SimStream*> woken;
  std::erase_if(waiting_, [&](const auto& one) {
    if (one.first > done_) {
      return false;
    }
    woken.push_back(one.second);
    return true;
  });
  for (SimStream* stream : woken) {
    stream->go_on();
  }
}

}  // namespace tandem::device
