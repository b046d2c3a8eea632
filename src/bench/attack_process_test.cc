#include "bench/attack_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

namespace tandem::bench {
namespace {

// The only child of this process.
pid_t child() {
  const std::string self = std::to_string(::getpid());
  std::ifstream children("/proc/self/task/" + self + "/children");
  pid_t found = -1;
  children >> found;
  return found;
}

Result<std::string> wait_for_answers(AttackProcess& attackers) {
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<std::string> answers, attackers.answers());
    if (answers) {
      return *answers;
    }
    std::this_thread::yield();
  }
}

TEST(AttackProcess, AnswersEndWithAnErrorWhenTheProcessHasEnded) {
  constexpr uint16_t kClosedPort = 1;
  AttackProcess attackers({{.name = "any", .body = "{}"}}, 2);
  ASSERT_TRUE(attackers.good());
  attackers.start(0, kClosedPort);
  attackers.stop();
  const Result<std::string> answers = wait_for_answers(attackers);
  ASSERT_TRUE(answers.ok());
  EXPECT_EQ(*answers, "none");
  const pid_t process = child();
  if (process <= 0) {
    GTEST_SKIP() << "this kernel does not list the children of a process";
  }
  ::kill(process, SIGKILL);
  siginfo_t ended{};
  ::waitid(P_PID, static_cast<id_t>(process), &ended, WEXITED | WNOWAIT);
  attackers.start(0, kClosedPort);
  attackers.stop();
  EXPECT_FALSE(wait_for_answers(attackers).ok());
}

}  // namespace
}  // namespace tandem::bench
