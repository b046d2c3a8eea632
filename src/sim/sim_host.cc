#include "sim/sim_host.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace tandem::sim {
namespace {

using piggyback::HopAnswer;
using piggyback::HopTask;

Nanos time_over(double bytes_per_second, int64_t bytes) {
  return bytes_per_second > 0
             ? Nanos{static_cast<int64_t>(static_cast<double>(bytes) * 1e9 / bytes_per_second)}
             : Nanos{0};
}

bool is_remote(const SimHostSpec& host) { return host.link_bytes > 0 || host.latency > Nanos{0}; }

// A step waits for the attention of all its sequences, so a much slower host would delay it.
HostTurn turn_of(const SimHostSpec& host, const std::vector<SimHostSpec>& hosts) {
  const bool remote = is_remote(host);
  double fastest = 0;
  for (const SimHostSpec& other : hosts) {
    fastest = std::max(fastest, is_remote(other) == remote ? other.bytes_per_second : 0);
  }
  const bool slow = host.bytes_per_second < fastest / 2;
  return remote ? (slow ? HostTurn::kSlowRemote : HostTurn::kRemote)
                : (slow ? HostTurn::kSlowLocal : HostTurn::kLocal);
}

}  // namespace

SimHostSpec pool_of(std::span<const SimHostSpec> hosts) {
  CHECK(!hosts.empty(), "a pool of no hosts");
  SimHostSpec pool{.bytes_per_second = 0, .workers = 0, .task = Nanos{0}};
  double seconds = std::numeric_limits<double>::infinity();  // to read a host's whole memory
  for (const SimHostSpec& host : hosts) {
    pool.bytes_per_second += host.bytes_per_second;
    // Each host has a part of every task, and each spends a task's fixed time.
    pool.workers = pool.workers == 0 ? host.workers : std::min(pool.workers, host.workers);
    pool.task = std::max(pool.task, host.task);
    pool.latency = std::max(pool.latency, host.latency);
    if (host.link_bytes > 0) {
      pool.link_bytes =
          pool.link_bytes > 0 ? std::min(pool.link_bytes, host.link_bytes) : host.link_bytes;
    }
    seconds = std::min(seconds, static_cast<double>(host.kv_bytes) / host.bytes_per_second);
  }
  pool.kv_bytes = static_cast<int64_t>(seconds * pool.bytes_per_second);
  return pool;
}

SimHosts::~SimHosts() {
  if (bandwidth_ != nullptr) {
    bandwidth_->remove_user(user_);
  }
  time_.forget(*this);
}

SimHosts::SimHosts(VirtualTime& time, const std::vector<SimHostSpec>& hosts,
                   piggyback::AttentionSpec spec)
    : time_(time), spec_(std::move(spec)) {
  CHECK(!hosts.empty(), "attention without a host");
  for (const SimHostSpec& host : hosts) {
    hosts_.emplace_back().spec = host;
    hosts_.back().turn = turn_of(host, hosts);
  }
}

int64_t SimHosts::bytes_of(const HopTask& task) const {
  const int32_t window = spec_.windows.empty() ? 0 : spec_.windows[static_cast<size_t>(task.layer)];
  const int64_t context = task.position + 1;
  const int64_t seen = window > 0 ? std::min<int64_t>(context, window) : context;
  const kernels::KvLayout& layout = spec_.layout;
  return seen * 2 * layout.kv_heads * layout.padded_head_dim * element_bytes(layout.type);
}

size_t SimHosts::host_of(const HopTask& task) {
  if (hosts_.size() == 1) {
    return 0;
  }
  const kernels::KvLayout& layout = spec_.layout;
  const int64_t bytes = (task.position + int64_t{1}) * layout.layers * 2 * layout.kv_heads *
                        layout.padded_head_dim * element_bytes(layout.type);
  const auto known = places_.find(task.sequence);
  Place& own = known != places_.end() ? known->second : place(task.sequence, bytes);
  hosts_[own.host].held_bytes += bytes - own.bytes;
  own.bytes = bytes;
  return own.host;
}

SimHosts::Place& SimHosts::place(SequenceId sequence, int64_t bytes) {
  std::erase_if(places_, [this](const auto& entry) {
    const bool gone = stays_ && !stays_(entry.first);
    hosts_[entry.second.host].held_bytes -= gone ? entry.second.bytes : 0;
    return gone;
  });
  return places_[sequence] = {.host = choose_host(bytes), .bytes = 0};
}

size_t SimHosts::choose_host(int64_t bytes) const {
  const auto rank = [bytes](const Host& host) {
    const int64_t free_bytes = host.spec.kv_bytes - host.held_bytes;
    const double seconds =
        static_cast<double>(host.held_bytes + bytes) / host.spec.bytes_per_second;
    return free_bytes < bytes ? std::tuple(true, HostTurn::kLocal, -static_cast<double>(free_bytes))
                              : std::tuple(false, host.turn, seconds);
  };
  return static_cast<size_t>(std::ranges::min_element(hosts_, {}, rank) - hosts_.begin());
}

Nanos SimHosts::paced(Nanos time) const {
  return pace_ == 1 ? time : Nanos{static_cast<int64_t>(static_cast<double>(time.count()) * pace_)};
}

void SimHosts::serve(const HopTask& task, size_t number) {
  Host& host = hosts_[number];
  const SimHostSpec& spec = host.spec;
  host.link_out_free_at = std::max(time_.now(), host.link_out_free_at) +
                          time_over(spec.link_bytes, spec_.routed_row_bytes);
  const int64_t bytes = bytes_of(task);
  const Nanos ready = host.link_out_free_at + spec.latency;
  const Nanos reading = paced(time_over(spec.bytes_per_second, bytes));
  const Nanos worked = paced(time_over(spec.bytes_per_second, bytes) + spec.task / spec.workers);
  host.open.push_back({.answer = {.hop = task.hop,
                                  .attempt = task.attempt,
                                  .failed = false,
                                  .worker = static_cast<int32_t>(number),
                                  .bytes = bytes}});
  ++waiting_;
  if (number == 0 && bandwidth_ != nullptr) {
    host.open.back().number = ++next_number_;
    bandwidth_->submit(user_, {.number = next_number_,
                               .ready = ready,
                               .alone = worked,
                               .memory = std::min(reading, worked)});
    return;
  }
  const Nanos began = std::max(ready, host.free_at);
  host.free_at = began + worked;
  counts_.busy += worked;
  answer_at(host, host.open.back(), began, host.free_at);
  if (watcher_) {
    watcher_(began, host.open.back().answer.ended);
  }
}

void SimHosts::answer_at(Host& host, Open& open, Nanos began, Nanos done) {
  const SimHostSpec& spec = host.spec;
  open.answer.began = began;
  open.answer.ended = done + paced(spec.task);
  host.link_back_free_at = std::max(open.answer.ended, host.link_back_free_at) +
                           time_over(spec.link_bytes, spec_.result_row_bytes);
  open.answered = host.link_back_free_at + spec.latency;
  time_.ask(open.answered, *this, &host - hosts_.data());
}

void SimHosts::share(device::SharedBandwidth& bandwidth) {
  bandwidth_ = &bandwidth;
  user_ = bandwidth.add_user(
      {.done = [this](int64_t number, Nanos began) { finish_shared(number, began); },
       .worked =
           [this](Nanos begin, Nanos end) {
             if (watcher_) {
               watcher_(begin, end);
             }
           }});
}

void SimHosts::finish_shared(int64_t number, Nanos began) {
  const Nanos now = time_.now();
  counts_.busy += now - began;
  Host& host = hosts_.front();
  const auto open = std::ranges::find(host.open, number, &Open::number);
  if (open == host.open.end()) {
    return;  // it was withdrawn
  }
  answer_at(host, *open, began, now);
  if (watcher_) {
    watcher_(now, open->answer.ended);
  }
}

void SimHosts::submit(std::span<const HopTask> tasks) {
  for (const HopTask& task : tasks) {
    serve(task, host_of(task));
  }
}

void SimHosts::notify(Nanos at) {
  if (listener_) {
    listener_({.at = at, .more_follow = waiting_ > 0});
  }
}

// Called once for each task that was submitted, in the order of the host's answers.
void SimHosts::on_time(int64_t what) {
  std::deque<Open>& open = hosts_[static_cast<size_t>(what)].open;
  if (open.empty() || open.front().answered > time_.now()) {
    return;  // it was withdrawn
  }
  const Open done = open.front();
  open.pop_front();
  --waiting_;
  ++counts_.tasks;
  counts_.bytes += done.answer.bytes;
  answers_.push_back(done.answer);
  notify(done.answered);
}

piggyback::AttentionHostCounts SimHosts::counts() const {
  piggyback::AttentionHostCounts counts = counts_;
  counts.busy /= std::ssize(hosts_);
  return counts;
}

void SimHosts::take_answers(std::vector<HopAnswer>& answers) {
  answers.insert(answers.end(), answers_.begin(), answers_.end());
  answers_.clear();
}

void SimHosts::withdraw(piggyback::HopId hop, int32_t attempt) {
  for (Host& host : hosts_) {
    const auto found = std::ranges::find_if(host.open, [&](const Open& open) {
      return open.answer.hop == hop && open.answer.attempt == attempt;
    });
    if (found == host.open.end()) {
      continue;
    }
    answers_.push_back({.hop = hop, .attempt = attempt, .failed = true});
    ++counts_.failed;
    host.open.erase(found);
    --waiting_;
    notify(time_.now());
    return;
  }
}

}  // namespace tandem::sim
