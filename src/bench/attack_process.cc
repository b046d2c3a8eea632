#include "bench/attack_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "bench/client_socket.h"

namespace tandem::bench {

namespace {

// From the parent; the child answers a command to stop with the text of answers().
struct Command {
  enum class Kind : uint32_t { kStart, kStop };
  Kind kind = Kind::kStop;
  uint32_t request = 0;
  uint32_t port = 0;
};
constexpr size_t kMaxReplyBytes = 4096;

class Attack {
 public:
  Attack(const HostileRequest& request, uint16_t port, int32_t attackers)
      : request_(request), port_(port) {
    for (int32_t i = 0; i < attackers; ++i) {
      threads_.emplace_back([this] { run(); });
    }
  }
  Attack(const Attack&) = delete;
  Attack& operator=(const Attack&) = delete;
  ~Attack() { static_cast<void>(end()); }

  // Returns the statuses and how often each came; never "", which would look like the process's
  // end.
  std::string end() {
    stopping_ = true;
    for (std::thread& thread : threads_) {
      thread.join();
    }
    threads_.clear();
    std::string text;
    for (const auto& [status, count] : statuses_) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, status);
    }
    return text.empty() ? "none" : text;
  }

 private:
  void run() {
    while (!stopping_) {
      const ClientSocket socket(port_);
      if (!socket.connected()) {
        break;
      }
      const std::string_view body = request_.body;
      const bool sent = socket.send(head_of(request_)) &&
                        socket.send(body.substr(0, body.size() - request_.cut_bytes));
      if (sent && request_.cut_bytes > 0) {
        count("left");
      } else {
        count(request_.answer_is_read || !sent ? read_answer(socket) : leave_unread());
      }
    }
  }
  static std::string read_answer(const ClientSocket& socket) {
    std::string status;
    std::array<char, 64 * 1024> buffer{};
    for (ssize_t bytes = 1; bytes > 0;) {
      bytes = ::recv(socket.fd(), buffer.data(), buffer.size(), 0);
      constexpr size_t kStatusAt = 9;
      if (status.empty() && bytes > 12) {
        status.assign(buffer.data() + kStatusAt, 3);
      }
    }
    return status.empty() ? "cut" : status;
  }
  std::string leave_unread() const {
    while (!stopping_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return "unread";
  }
  void count(const std::string& status) {
    const std::scoped_lock lock(mutex_);
    ++statuses_[status];
  }

  const HostileRequest& request_;
  const uint16_t port_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::map<std::string, int> statuses_;  // guarded by mutex_
  std::vector<std::thread> threads_;
};

void run_child(const std::vector<HostileRequest>& requests, int32_t attackers, int channel) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::unique_ptr<Attack> attack;
  Command command;
  while (::recv(channel, &command, sizeof(command), 0) == sizeof(command)) {
    if (command.kind == Command::Kind::kStart) {
      attack = std::make_unique<Attack>(requests[command.request],
                                        static_cast<uint16_t>(command.port), attackers);
      continue;
    }
    const std::string answers = attack->end();
    if (::send(channel, answers.data(), std::min(answers.size(), kMaxReplyBytes), MSG_NOSIGNAL) <
        0) {
      return;
    }
  }
}

void send_command(int channel, const Command& command) {
  static_cast<void>(::send(channel, &command, sizeof(command), MSG_NOSIGNAL));
}

}  // namespace

AttackProcess::AttackProcess(std::vector<HostileRequest> requests, int32_t attackers) {
  for (const HostileRequest& request : requests) {
    names_.push_back(request.name);
  }
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return;
  }
  child_ = ::fork();
  if (child_ == 0) {
    ::close(ends[0]);
    run_child(requests, attackers, ends[1]);
    ::_exit(0);
  }
  ::close(ends[1]);
  channel_ = ends[0];
}

AttackProcess::~AttackProcess() {
  ::close(channel_);
  if (good()) {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
}

void AttackProcess::start(size_t request, uint16_t port) {
  send_command(
      channel_,
      {.kind = Command::Kind::kStart, .request = static_cast<uint32_t>(request), .port = port});
}

void AttackProcess::stop() { send_command(channel_, {.kind = Command::Kind::kStop}); }

Result<std::optional<std::string>> AttackProcess::answers() {
  pollfd waiting{.fd = channel_, .events = POLLIN, .revents = 0};
  if (::poll(&waiting, 1, 0) <= 0) {
    return std::optional<std::string>();
  }
  std::array<char, kMaxReplyBytes> reply{};
  const ssize_t bytes = ::recv(channel_, reply.data(), reply.size(), 0);
  if (bytes <= 0) {
    return Error{ErrorCode::kInternal, "the process of the attackers has ended", ""};
  }
  return std::optional(std::string(reply.data(), static_cast<size_t>(bytes)));
}

}  // namespace tandem::bench
