// Hosts' attention in virtual time. Each host is a server of its memory's bandwidth, first come,
// first served, with workers who pay for each task beside each other, and may have a link of its
// own. Computes nothing. One thread.
//
// The KV of a sequence lies on one host, which is chosen when its first task comes. Hosts are
// filled in turns (HostTurn): local hosts, which have no link of their own, before remote hosts
// (OmniServe 4), and within each distance fast hosts before hosts of less than half the bandwidth
// of the fastest. A turn may have several hosts with room for the sequence: each would then hold
// its own KV and that of the sequence, and the host that reads this in the least time is chosen, or
// the first listed of equal hosts. If no host has room, the host with the most free memory is
// chosen. The KV stays there, also while the sequence has no task. Which KV is gone is asked
// (set_stays) when a sequence comes that has no host: a sequence that leaves and comes back before
// has its old place.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <unordered_map>
#include <vector>

#include "base/virtual_time.h"
#include "device/sim/shared_bandwidth.h"
#include "piggyback/attention_host.h"

namespace tandem::sim {

// Truth: nobody plans by it.
struct SimHostSpec {
  double bytes_per_second = 150e9;  // of K and V, by all workers together
  int32_t workers = 32;
  Nanos task{std::chrono::microseconds(3)};  // that a worker takes for each task beside reading
  int64_t kv_bytes = 0;   // memory for KV; only matters where there are several hosts
  double link_bytes = 0;  // per second and direction, of a link to the first machine; 0: no bound
  Nanos latency{0};       // of that link, each way
};

// When a host gets sequences: once the hosts of earlier turns have no room.
enum class HostTurn : uint8_t { kLocal, kSlowLocal, kRemote, kSlowRemote };

// Hosts over which the KV of every sequence is spread, as one: they read side by side, so each
// holds a part in proportion to its rate; each gets the whole query over its link.
SimHostSpec pool_of(std::span<const SimHostSpec> hosts);

class SimHosts final : public piggyback::AttentionHost, private VirtualTime::Actor {
 public:
  using Watcher = std::function<void(Nanos begin, Nanos end)>;
  // Whether the KV of a sequence is still on its host.
  using Stays = std::function<bool(SequenceId)>;

  // At least one host. `time` must outlive it.
  SimHosts(VirtualTime& time, const std::vector<SimHostSpec>& hosts, piggyback::AttentionSpec spec);
  ~SimHosts() override;
  SimHosts(const SimHosts&) = delete;
  SimHosts& operator=(const SimHosts&) = delete;

  // The first host's memory has this bandwidth, which must outlive it, together with others. Before
  // the first task.
  void share(device::SharedBandwidth& bandwidth);
  // What is submitted from now on takes so many times as long: what a faulty measurement would see.
  void set_pace(double pace) { pace_ = pace; }
  // Asked when a sequence comes that has no host. By default KV stays for ever.
  void set_stays(Stays stays) { stays_ = std::move(stays); }
  // Called with the beginning and end of each task's work when it is submitted.
  void watch(Watcher watcher) { watcher_ = std::move(watcher); }

  void submit(std::span<const piggyback::HopTask> tasks) override;
  void take_answers(std::vector<piggyback::HopAnswer>& answers) override;
  void withdraw(piggyback::HopId hop, int32_t attempt) override;
  void set_listener(piggyback::AnswerListener listener) override {
    listener_ = std::move(listener);
  }
  // `busy`: of a server, the mean over the hosts, which executors take for one worker. A host is a
  // worker of answers.
  [[nodiscard]] piggyback::AttentionHostCounts counts() const override;
  [[nodiscard]] int64_t waiting() const override { return waiting_; }
  void rest() override { time_.step(); }
  [[nodiscard]] bool computes() const override { return false; }

 private:
  struct Open {
    piggyback::HopAnswer answer;
    Nanos answered = Nanos::max();  // max: not known yet
    int64_t number = 0;             // of tasks that share the bandwidth
  };
  struct Host {
    SimHostSpec spec;
    HostTurn turn = HostTurn::kLocal;
    Nanos free_at{0};
    Nanos link_out_free_at{0};
    Nanos link_back_free_at{0};
    std::deque<Open> open;  // in the order of their answers
    int64_t held_bytes = 0;
  };
  struct Place {
    size_t host = 0;
    int64_t bytes = 0;
  };

  void on_time(int64_t what) override;  // the number of a host
  [[nodiscard]] int64_t bytes_of(const piggyback::HopTask& task) const;
  size_t host_of(const piggyback::HopTask& task);
  // Chooses a host for a sequence that has none. `bytes`: its KV now.
  Place& place(SequenceId sequence, int64_t bytes);
  [[nodiscard]] size_t choose_host(int64_t bytes) const;
  void serve(const piggyback::HopTask& task, size_t number);
  void finish_shared(int64_t number, Nanos began);
  // The answer of a task whose work is done at `done`.
  void answer_at(Host& host, Open& open, Nanos began, Nanos done);
  [[nodiscard]] Nanos paced(Nanos time) const;
  void notify(Nanos at);

  VirtualTime& time_;
  const piggyback::AttentionSpec spec_;
  std::vector<Host> hosts_;
  std::unordered_map<SequenceId, Place> places_;  // empty with a single host
  Stays stays_;
  piggyback::AnswerListener listener_;
  Watcher watcher_;
  double pace_ = 1;
  device::SharedBandwidth* bandwidth_ = nullptr;
  device::SharedBandwidth::User user_ = 0;
  int64_t next_number_ = 0;
  piggyback::AttentionHostCounts counts_;
  int64_t waiting_ = 0;  // in open of all hosts
  std::vector<piggyback::HopAnswer> answers_;
};

}  // namespace tandem::sim
