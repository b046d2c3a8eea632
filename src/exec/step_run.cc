#include "exec/step_run.h"

#include <algorithm>

#include "base/check.h"
#include "exec/workspaces.h"

namespace tandem {

using device::CopyOp;
using piggyback::HopCore;
using piggyback::Visit;

namespace {

// So much work is kept queued on the device that it does not run dry while the engine thread is on
// its way: two groups, or more where they are short.
constexpr size_t kLeastGroupsAhead = 2;
constexpr Nanos kTimeAhead = std::chrono::microseconds(1500);

}  // namespace

StepRun::StepRun(const Parts& parts, const ExecutorLimits& limits, int32_t last_stage)
    : parts_(parts),
      limits_(limits),
      last_stage_(last_stage),
      staging_(parts.device, kStagedGroups) {}

Status StepRun::allocate(int64_t group_staging_bytes) {
  return parts_.tier == nullptr ? Status{} : staging_.allocate(group_staging_bytes);
}

void StepRun::begin(int64_t step, const StepInputs& inputs) {
  CHECK(!running_, "step {} is launched while step {} runs", step, step_);
  running_ = true;
  launched_all_ = false;
  step_ = step;
  inputs_ = inputs;
  next_stage_ = 0;
  took_visitors_ = false;
  if (parts_.tier == nullptr) {
    launch_all();
  } else {
    launch_groups();
  }
}

bool StepRun::advance() {
  if (parts_.tier != nullptr) {
    parts_.tier->pump();
    take_groups();
    if (running_ && !launched_all_) {
      launch_groups();
    }
  }
  if (!running_ || !launched_all_ || !parts_.device.query(*last_event_)) {
    return false;
  }
  running_ = false;
  return true;
}

void StepRun::wait_no_longer() {
  if (running_ && !launched_all_ && inputs_.rows == 0) {
    end();
  }
}

// The last layer's K and V are in place after its first half; nobody reads the rest of a step
// without samples.
bool StepRun::attends(int32_t layer) const {
  return inputs_.rows > 0 &&
         (layer + 1 < last_stage_ || inputs_.sample_count > 0 || inputs_.scored_count > 0);
}

void StepRun::launch_all() {
  if (inputs_.rows > 0) {
    for (int32_t stage = 0; stage < last_stage_; ++stage) {
      parts_.stages.launch_stage(parts_.device, parts_.stream, inputs_, stage);
      if (attends(stage)) {
        parts_.stages.launch_attention(parts_.device, parts_.stream, inputs_, stage);
      }
    }
    launch_last_stage({});
  }
  end();
}

void StepRun::launch_last_stage(const TailRows& tail) {
  if (inputs_.sample_count + tail.rows > 0) {
    parts_.stages.launch_stage(parts_.device, parts_.stream, inputs_, last_stage_, tail);
    parts_.sampling.launch({inputs_.samples, inputs_.sample_count}, {visitor_samples_, tail.rows});
  }
  if (inputs_.scored_count > 0) {
    parts_.sampling.launch_scoring(parts_.stages, inputs_);
  }
}

void StepRun::end() {
  last_event_ = parts_.device.record(parts_.stream);
  launched_all_ = true;
}

// ---------------------------------------------------------------- groups

void StepRun::take_groups() {
  while (!groups_.empty() && parts_.device.query(groups_.front().done)) {
    const Group& group = groups_.front();
    parts_.tier->group_done(group.ticket);
    const Nanos now = parts_.tier->now();
    const Nanos took = now - std::max(group.launched, last_done_);
    stage_time_ = (3 * stage_time_ + took / group.stages) / 4;
    last_done_ = now;
    groups_.pop_front();
  }
}

bool StepRun::may_launch() const {
  if (groups_.size() < kLeastGroupsAhead) {
    return true;
  }
  const Nanos queued = stage_time_ * static_cast<int64_t>(groups_.size()) * parts_.group_stages;
  return groups_.size() < kGroupsAhead && queued < kTimeAhead;
}

void StepRun::launch_groups() {
  while (!launched_all_ && may_launch()) {
    const Next next = choose_stage();
    if (next == Next::kWait) {
      return;
    }
    if (next == Next::kEnd) {
      end();
      return;
    }
    const int32_t end_stage = std::min(next_stage_ + parts_.group_stages, last_stage_ + 1);
    const Nanos began = parts_.tier->now();
    if (!bind_group(end_stage) && inputs_.rows == 0) {
      return;  // the binder lets nobody in now; it is asked again when something has changed
    }
    lay_out_group();
    launch_group(end_stage);
    if (parts_.binds != nullptr) {
      parts_.binds->add({.name = "bind and launch a group",
                         .begin = began,
                         .end = parts_.tier->now(),
                         .detail = "visitors",
                         .value = static_cast<int64_t>(visits_.size())});
    }
    next_stage_ = end_stage;
    if (next_stage_ > last_stage_) {
      end();
    }
  }
}

// With residents every stage is passed. Without, only those that somebody can visit now; where
// nobody can, the step ends if it has done anything, and waits for a hop if it has not.
StepRun::Next StepRun::choose_stage() {
  if (inputs_.rows > 0) {
    return Next::kLaunch;
  }
  const HopCore& hops = parts_.tier->hops();
  for (int32_t stage = next_stage_; stage <= last_stage_; ++stage) {
    if (hops.ready(stage) > 0 && hops.credits(stage) > 0) {
      next_stage_ = stage;
      return Next::kLaunch;
    }
  }
  const bool more_may_come = hops.in_flight() > 0 || !groups_.empty();
  return !took_visitors_ && more_may_come ? Next::kWait : Next::kEnd;
}

// True: there are visitors.
bool StepRun::bind_group(int32_t end_stage) {
  const HopCore& hops = parts_.tier->hops();
  ready_.clear();
  credits_.clear();
  for (int32_t stage = next_stage_; stage < end_stage; ++stage) {
    ready_.push_back(hops.ready(stage));
    credits_.push_back(hops.credits(stage));
  }
  const BindView view{.now = parts_.tier->now(),
                      .step = step_,
                      .first_stage = next_stage_,
                      .last_stage = last_stage_,
                      .resident_rows = inputs_.rows,
                      .row_room = limits_.max_batched_tokens - inputs_.rows,
                      .logit_room = limits_.max_logit_rows - inputs_.sample_count,
                      .ready = ready_,
                      .credits = credits_};
  parts_.binder->bind(view, decision_);
  CHECK(decision_.visitors.size() == ready_.size(), "a decision for {} stages of {}",
        decision_.visitors.size(), ready_.size());
  ++ticket_;
  visits_.clear();
  stage_ends_.clear();
  for (size_t i = 0; i < ready_.size(); ++i) {
    const int32_t stage = next_stage_ + static_cast<int32_t>(i);
    const int32_t room = stage == last_stage_ ? view.logit_room : view.row_room;
    const int32_t limit = std::min({decision_.visitors[i], room, hops.credits(stage)});
    if (limit > 0) {
      parts_.tier->bind(stage, limit, ticket_, visits_);
    }
    stage_ends_.push_back(visits_.size());
  }
  took_visitors_ = took_visitors_ || !visits_.empty();
  return !visits_.empty();
}

void StepRun::lay_out_group() {
  tails_.assign(stage_ends_.size(), TailRows{});
  visitor_samples_ = nullptr;
  if (visits_.empty()) {
    return;
  }
  const bool samples = next_stage_ + static_cast<int32_t>(stage_ends_.size()) > last_stage_;
  const size_t last_begin = stage_ends_.size() < 2 ? 0 : stage_ends_[stage_ends_.size() - 2];
  const std::span<const Visit> all = visits_;
  const std::span<const Visit> sampled = samples ? all.subspan(last_begin) : all.first(0);
  StepSize size;
  for (const Visit& visit : sampled) {
    measure_sample(parts_.tier->sample_of(visit.sequence), size);
  }
  const auto count = static_cast<int64_t>(visits_.size());
  const int64_t bytes = visitor_bytes(count, size);
  const StagingPlace place = staging_.next(bytes);
  VisitorWriter writer(count, size, place);
  size_t begin = 0;
  for (size_t i = 0; i < stage_ends_.size(); ++i) {
    tails_[i] = writer.add_stage(all.subspan(begin, stage_ends_[i] - begin));
    begin = stage_ends_[i];
  }
  for (const Visit& visit : sampled) {
    const SampleSpec& spec = parts_.tier->sample_of(visit.sequence);
    writer.add_sample(spec);
    parts_.sampling.add_visitor(spec);
  }
  visitor_samples_ = writer.samples();
  parts_.device.launch(parts_.stream, CopyOp{place.device, place.host, bytes});
}

void StepRun::launch_group(int32_t end_stage) {
  size_t begin = 0;
  for (int32_t stage = next_stage_; stage < end_stage; ++stage) {
    const auto i = static_cast<size_t>(stage - next_stage_);
    const TailRows& tail = tails_[i];
    if (stage == last_stage_) {
      launch_last_stage(tail);
      continue;
    }
    if (inputs_.rows + tail.rows > 0) {
      parts_.stages.launch_stage(parts_.device, parts_.stream, inputs_, stage, tail);
    }
    if (tail.rows > 0) {
      parts_.tier->send(std::span(visits_).subspan(begin, stage_ends_[i] - begin),
                        parts_.device.record(parts_.stream));
    }
    begin = stage_ends_[i];
    if (attends(stage)) {
      parts_.stages.launch_attention(parts_.device, parts_.stream, inputs_, stage);
    }
  }
  groups_.push_back({.ticket = ticket_,
                     .done = parts_.device.record(parts_.stream),
                     .launched = parts_.tier->now(),
                     .stages = end_stage - next_stage_});
}

}  // namespace tandem
