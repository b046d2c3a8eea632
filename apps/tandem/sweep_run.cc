#include "sweep_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "progress.h"
#include "signals.h"

namespace tandem {
namespace {

struct Child {
  pid_t id = -1;
  size_t point = 0;
};

// In the new process. It ends with this one, and Ctrl-C of a terminal reaches this one alone.
[[noreturn]] void become_point(const std::string& scenario, const std::string& folder,
                               const std::string& log, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) {
    ::_exit(1);
  }
  ::setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  const int input = ::open("/dev/null", O_RDONLY);
  const int output = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (input < 0 || output < 0 || ::dup2(input, STDIN_FILENO) < 0 ||
      ::dup2(output, STDOUT_FILENO) < 0 || ::dup2(output, STDERR_FILENO) < 0) {
    ::_exit(1);
  }
  ::execl("/proc/self/exe", "tandem", "simulate", scenario.c_str(), "-o", folder.c_str(), nullptr);
  ::_exit(1);
}

pid_t start(const std::filesystem::path& folder) {
  const std::string scenario = folder / "scenario.yaml";
  const std::string log = folder / "log";
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    become_point(scenario, folder.string(), log, parent);
  }
  return child;
}

std::string last_line(const std::filesystem::path& log) {
  std::ifstream file(log);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    last = line.empty() ? last : line;
  }
  return last.empty() ? "it said nothing" : last;
}

std::string failure_of(int status, const std::filesystem::path& folder) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    return "";
  }
  return fmt::format("{} {}: {}", WIFSIGNALED(status) ? "signal" : "exit code",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
                     last_line(folder / "log"));
}

}  // namespace

int32_t usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return ::sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

PointsRun run_points(const std::vector<std::filesystem::path>& folders, int32_t jobs,
                     const Clock& clock) {
  constexpr Nanos kPause = std::chrono::milliseconds(20);
  const auto places = static_cast<size_t>(jobs > 0 ? jobs : usable_cores());
  const Signals signals;
  PointsRun run{.outcomes = std::vector<PointOutcome>(folders.size()), .stopped = false};
  CountProgress progress("points", clock);
  std::vector<Child> children;
  size_t next = 0;
  size_t done = 0;
  while (done < folders.size() && !run.stopped) {
    for (; next < folders.size() && children.size() < places; ++next) {
      const pid_t id = start(folders[next]);
      if (id < 0) {
        run.outcomes[next] = {.ended = true, .failure = "its process could not be started"};
        ++done;
      } else {
        children.push_back({.id = id, .point = next});
      }
    }
    run.stopped = signals.wait(kPause) == Signals::Asked::kStop;
    std::erase_if(children, [&](const Child& child) {
      int status = 0;
      if (::waitpid(child.id, &status, WNOHANG) != child.id) {
        return false;
      }
      run.outcomes[child.point] = {.ended = true,
                                   .failure = failure_of(status, folders[child.point])};
      ++done;
      return true;
    });
    progress.show(static_cast<int64_t>(done), std::ssize(folders));
  }
  for (const Child& child : children) {
    ::kill(child.id, SIGKILL);
    ::waitpid(child.id, nullptr, 0);
  }
  progress.finish();
  return run;
}

}  // namespace tandem
