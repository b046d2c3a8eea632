#include "device/sim/shared_bandwidth.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace tandem::device {
namespace {

constexpr int64_t kReady = 0;       // a job may begin; other numbers are timers
constexpr double kRounding = 1e-3;  // nanoseconds

}  // namespace

SharedBandwidth::User SharedBandwidth::add_user(Listener listener) {
  users_.push_back({.listener = std::move(listener), .jobs = {}});
  return users_.size() - 1;
}

void SharedBandwidth::remove_user(User user) { users_[user] = {}; }

void SharedBandwidth::submit(User user, const Job& job) {
  CHECK(job.memory <= job.alone, "a job that needs more than the bandwidth");
  users_[user].jobs.push_back(job);
  time_.ask(job.ready, *this, kReady);
}

void SharedBandwidth::on_time(int64_t timer) {
  if (timer != kReady && timer != timer_) {
    return;
  }
  const Nanos now = time_.now();
  advance(now);
  std::vector<Done> done;
  do {
    const std::vector<Done> more = finish();
    done.insert(done.end(), more.begin(), more.end());
  } while (start(now));
  share();
  ask_next(now);
  for (const Done& job : done) {
    if (users_[job.user].listener.done) {
      users_[job.user].listener.done(job.number, job.began);
    }
  }
}

void SharedBandwidth::advance(Nanos now) {
  for (State& user : users_) {
    if (!user.running || now <= advanced_) {
      continue;
    }
    user.left -= user.speed * static_cast<double>((now - advanced_).count());
    if (user.listener.worked) {
      user.listener.worked(advanced_, now);
    }
  }
  advanced_ = std::max(advanced_, now);
}

std::vector<SharedBandwidth::Done> SharedBandwidth::finish() {
  std::vector<Done> done;
  for (User i = 0; i < users_.size(); ++i) {
    State& user = users_[i];
    if (user.running && user.left < kRounding) {
      done.push_back({.user = i, .number = user.jobs.front().number, .began = user.began});
      user.jobs.pop_front();
      user.running = false;
    }
  }
  return done;
}

bool SharedBandwidth::start(Nanos now) {
  bool started = false;
  for (State& user : users_) {
    if (!user.running && !user.jobs.empty() && user.jobs.front().ready <= now) {
      user.running = true;
      user.began = now;
      user.left = static_cast<double>(user.jobs.front().alone.count());
      started = true;
    }
  }
  return started;
}

// From the job on that needs least: the rest of its even share is for the others.
void SharedBandwidth::share() {
  std::vector<std::pair<double, State*>> needs;
  for (State& user : users_) {
    if (user.running) {
      const Job& job = user.jobs.front();
      needs.emplace_back(job.alone > Nanos{0} ? static_cast<double>(job.memory.count()) /
                                                    static_cast<double>(job.alone.count())
                                              : 0,
                         &user);
    }
  }
  std::ranges::stable_sort(needs, {}, [](const auto& need) { return need.first; });
  double rest = 1;
  for (size_t i = 0; i < needs.size(); ++i) {
    const double need = needs[i].first;
    const double given = std::min(need, rest / static_cast<double>(needs.size() - i));
    needs[i].second->speed = need > 0 ? given / need : 1;
    rest -= given;
  }
}

void SharedBandwidth::ask_next(Nanos now) {
  Nanos next = Nanos::max();
  for (const State& user : users_) {
    if (user.running) {
      const double left = std::max(std::ceil(user.left / user.speed), 1.0);
      next = std::min(next, left < static_cast<double>(kReport.count())
                                ? Nanos{static_cast<int64_t>(left)}
                                : kReport);
    }
  }
  if (next != Nanos::max()) {
    time_.ask(now + next, *this, ++timer_);
  }
}

}  // namespace tandem::device
