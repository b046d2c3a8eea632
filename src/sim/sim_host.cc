#include "sim/sim_host.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tandem::sim {

using piggyback::HopAnswer;
using piggyback::HopTask;

int64_t SimHost::bytes_of(const HopTask& task) const {
  const int32_t window = spec_.windows.empty() ? 0 : spec_.windows[static_cast<size_t>(task.layer)];
  const int64_t context = task.position + 1;
  const int64_t seen = window > 0 ? std::min<int64_t>(context, window) : context;
  const kernels::KvLayout& layout = spec_.layout;
  return seen * 2 * layout.kv_heads * layout.padded_head_dim * element_bytes(layout.type);
}

void SimHost::submit(std::span<const HopTask> tasks) {
  for (const HopTask& task : tasks) {
    const int64_t bytes = bytes_of(task);
    const Nanos reading{
        static_cast<int64_t>(static_cast<double>(bytes) * 1e9 / host_.bytes_per_second)};
    const Nanos began = std::max(time_.now(), free_at_);
    free_at_ = began + reading + host_.task / host_.workers;
    const Nanos ended = free_at_ + host_.task;
    open_.push_back({.hop = task.hop,
                     .attempt = task.attempt,
                     .failed = false,
                     .worker = 0,
                     .began = began,
                     .ended = ended,
                     .bytes = bytes});
    time_.ask(ended, *this, 0);
  }
}

// One is called for each task that was submitted, in the order of their ends.
void SimHost::on_time(int64_t /*what*/) {
  if (open_.empty() || open_.front().ended > time_.now()) {
    return;  // it was withdrawn
  }
  const HopAnswer answer = open_.front();
  open_.pop_front();
  ++counts_.tasks;
  counts_.bytes += answer.bytes;
  counts_.busy += answer.ended - answer.began;
  answers_.push_back(answer);
  if (listener_) {
    listener_({.at = answer.ended, .more_follow = !open_.empty()});
  }
}

void SimHost::take_answers(std::vector<HopAnswer>& answers) {
  answers.insert(answers.end(), answers_.begin(), answers_.end());
  answers_.clear();
}

void SimHost::withdraw(piggyback::HopId hop, int32_t attempt) {
  const auto found = std::ranges::find_if(open_, [&](const HopAnswer& answer) {
    return answer.hop == hop && answer.attempt == attempt;
  });
  if (found == open_.end()) {
    return;
  }
  answers_.push_back({.hop = hop, .attempt = attempt, .failed = true});
  ++counts_.failed;
  open_.erase(found);
  if (listener_) {
    listener_({.at = time_.now(), .more_follow = !open_.empty()});
  }
}

}  // namespace tandem::sim
