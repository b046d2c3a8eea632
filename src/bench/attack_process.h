// Clients that send one kind of request again and again, in a process of their own: what they
// allocate, and the threads that read for them, do not count as the server's. Threads: one owner.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/hostile_requests.h"

namespace tandem::bench {

class AttackProcess {
 public:
  // Forks, so no other thread may run yet. Keeps no copy of the bodies in this process.
  AttackProcess(std::vector<HostileRequest> requests, int32_t attackers);
  ~AttackProcess();
  AttackProcess(const AttackProcess&) = delete;
  AttackProcess& operator=(const AttackProcess&) = delete;

  [[nodiscard]] bool good() const { return child_ > 0; }
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

  // Attacks with request number `request` until stop(). Needs the answers() of the attack before
  // it.
  void start(size_t request, uint16_t port);
  void stop();
  // What the server answered, by status, once every attacker has ended; nullopt: some have not. An
  // error: the process has ended.
  [[nodiscard]] Result<std::optional<std::string>> answers();

 private:
  std::vector<std::string> names_;
  pid_t child_ = -1;
  int channel_ = -1;  // to the child
};

}  // namespace tandem::bench
