#include "device/cpu/stream.h"

#include <utility>
#include <variant>

#include "base/affinity.h"
#include "device/cpu/futex.h"
#include "device/cpu/spin.h"

namespace tandem::device {

void Milestone::reach(int64_t number) {
  value_.store(number, std::memory_order_seq_cst);
  changes_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) {
    futex_wake_all(changes_);
  }
}

void Milestone::wait_for(int64_t number, Nanos spin) {
  if (spin_until(spin, [&] { return reached(number); })) {
    return;
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (true) {
    const uint32_t seen = changes_.load(std::memory_order_seq_cst);
    if (reached(number)) {
      break;
    }
    futex_wait(changes_, seen);
  }
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

CpuStream::CpuStream(std::unique_ptr<StreamWork> work, const CpuStreamOptions& options)
    : spin_(options.spin), work_(std::move(work)), thread_([this, cpus = options.cpus] {
        if (!cpus.empty()) {
          pin_this_thread(cpus);
        }
        work_off();
      }) {}

CpuStream::~CpuStream() { stop(); }

void CpuStream::stop() {
  if (thread_.joinable()) {
    queue_.push(StopEntry{});
    publish();
    thread_.join();
  }
}

int64_t CpuStream::record(const std::function<void()>* listener) {
  const int64_t event = recorded_.load(std::memory_order_relaxed) + 1;
  recorded_.store(event, std::memory_order_relaxed);
  queue_.push(RecordEntry{event, listener});
  publish();
  return event;
}

void CpuStream::wait(CpuStream& other, int64_t event) { queue_.push(WaitEntry{&other, event}); }

void CpuStream::publish() {
  quiet_ops_ = 0;
  queue_.publish();
  if (asleep_.load(std::memory_order_seq_cst) != 0) {
    asleep_.store(0, std::memory_order_seq_cst);
    futex_wake(asleep_, 1);
  }
}

const StreamEntry* CpuStream::next_entry() {
  const StreamEntry* entry = nullptr;
  const auto there = [&] { return (entry = queue_.front()) != nullptr; };
  if (there()) {
    return entry;
  }
  while (!spin_until(spin_, there)) {
    asleep_.store(1, std::memory_order_seq_cst);
    if (there()) {
      asleep_.store(0, std::memory_order_relaxed);
      break;
    }
    while (asleep_.load(std::memory_order_acquire) != 0) {
      futex_wait(asleep_, 1);
    }
  }
  work_->after_pause();
  return entry;
}

void CpuStream::complete(const RecordEntry& record) {
  completed_.reach(record.event);
  if (record.listener != nullptr && *record.listener) {
    (*record.listener)();
  }
  settled_.reach(record.event);
}

void CpuStream::work_off() {
  work_->after_pause();
  while (true) {
    const StreamEntry& entry = *next_entry();
    if (const auto* op = std::get_if<Op>(&entry)) {
      work_->run(*op);
    } else if (const auto* record = std::get_if<RecordEntry>(&entry)) {
      work_->before_event();
      complete(*record);
    } else if (const auto* wait = std::get_if<WaitEntry>(&entry)) {
      if (!wait->stream->completed(wait->event)) {
        wait->stream->completed_.wait_for(wait->event, spin_);
        work_->after_pause();
      }
    } else {
      return;
    }
    queue_.pop();
  }
}

}  // namespace tandem::device
