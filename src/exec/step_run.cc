#include "exec/step_run.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "exec/workspaces.h"

namespace tandem {

using device::CopyOp;
using piggyback::Visit;

namespace {

// Bounds the time between two looks at hops if groups are long: a hop that waits this much longer
// is still back within a fraction of the step.
constexpr Nanos kMaxPollInterval = std::chrono::microseconds(1000);

}  // namespace

StepRun::StepRun(const Parts& parts, const ExecutorLimits& limits, int32_t last_stage)
    : parts_(parts),
      limits_(limits),
      last_stage_(last_stage),
      histories_(limits.host_blocks, limits.block_tokens),
      staging_(parts.device, kStagedGroups),
      sample_staging_(parts.device, kStagedSamples) {}

Status StepRun::allocate(const HostTierSizes& sizes) {
  if (!parts_.host) {
    return {};
  }
  RETURN_IF_ERROR(staging_.allocate(sizes.group_staging));
  return sample_staging_.allocate(sizes.sample_staging);
}

void StepRun::begin(int64_t step, StepMode mode, const StepInputs& inputs) {
  CHECK(!running_, "step {} is launched while step {} runs", step, step_);
  running_ = true;
  launched_all_ = false;
  step_ = step;
  mode_ = mode;
  inputs_ = inputs;
  next_stage_ = 0;
  next_lane_ = 0;
  first_ticket_ = ticket_ + 1;
  sampled_visitors_ = 0;
  held_since_.reset();
  idle_since_.reset();
  held_ = Nanos{0};
  second_ = {};
  visits_in_step_ = 0;
  ready_in_step_ = 0;
  if (inputs_.rows > 0) {
    // If the first layer does not attend, none does.
    parts_.stages.prepare(parts_.device, parts_.stream, inputs_, attends(0), resident_ops_);
  }
  if (!parts_.host) {
    launch_all();
  } else {
    parts_.host->notifier.set_min_interval(poll_interval());
    launch_more();
  }
}

// The interval at which this step's binds poll hops; 0: nothing polls by itself. Beside residents
// every bind polls. Half a group's time from one look to the next costs a bind at most the late
// half of its results.
Nanos StepRun::poll_interval() const {
  if (inputs_.rows == 0 || mode_ != StepMode::kGroups) {
    return Nanos{0};
  }
  return std::min(groups_.stage_time() * parts_.host->group_stages / 2, kMaxPollInterval);
}

void StepRun::launch_more() {
  if (mode_ == StepMode::kLanes) {
    launch_lanes();
  } else {
    launch_groups();
  }
}

bool StepRun::advance() {
  if (parts_.host) {
    take_groups();
    if (running_ && !launched_all_) {
      launch_more();
    }
  }
  if (!running_ || !launched_all_ || !is_complete()) {
    return false;
  }
  running_ = false;
  if (parts_.host) {
    parts_.host->notifier.set_min_interval(Nanos{0});
  }
  return true;
}

bool StepRun::is_complete() {
  if (!parts_.device.query(*last_event_)) {
    return false;
  }
  if (stages_prompts() && !parts_.host->staging->done()) {
    begin_hold(parts_.host->clock.now());
    return false;
  }
  end_hold();
  return true;
}

void StepRun::count_visits(StepResult& result) const {
  result.visits = visits_in_step_;
  result.ready = parts_.host ? ready_in_step_ : -1;
  result.second = second_;
  result.held = held_;
}

void StepRun::wait_no_longer() {
  if (running_ && !launched_all_ && inputs_.rows == 0) {
    end();
  }
}

// The last layer's K and V are in place after its first half; a step without samples
// needs no more than that.
bool StepRun::attends(int32_t layer) const {
  return inputs_.rows > 0 &&
         (layer + 1 < last_stage_ || inputs_.sample_count > 0 || inputs_.scored_count > 0);
}

void StepRun::launch_all() {
  if (inputs_.rows > 0) {
    for (int32_t stage = 0; stage < last_stage_; ++stage) {
      parts_.stages.launch_stage(parts_.device, parts_.stream, inputs_, resident_ops_, stage);
      if (attends(stage)) {
        parts_.stages.launch_attention(parts_.device, parts_.stream, inputs_, resident_ops_, stage);
      }
    }
    launch_last_stage({});
  }
  end();
}

void StepRun::launch_last_stage(const TailRows& tail) {
  const int32_t residents = tail.alone ? 0 : inputs_.sample_count;
  if (residents + tail.rows > 0) {
    parts_.stages.launch_last_stage(parts_.device, parts_.stream, inputs_, tail);
    parts_.sampling.launch({inputs_.samples, residents}, {visitor_samples_, tail.rows});
  }
  sampled_visitors_ += tail.rows;
  if (inputs_.scored_count > 0 && !tail.alone) {
    parts_.sampling.launch_scoring(parts_.stages, inputs_);
  }
}

void StepRun::end() {
  end_hold();
  last_event_ = parts_.device.record(parts_.stream);
  launched_all_ = true;
}

// ---------------------------------------------------------------- groups

void StepRun::take_groups() {
  while (!groups_.empty() && parts_.device.query(groups_.oldest().done)) {
    parts_.host->hops.group_done(groups_.oldest().ticket);
    groups_.pop(parts_.host->clock.now());
  }
}

void StepRun::launch_groups() {
  const int32_t group_stages = stages_prompts() ? 1 : parts_.host->group_stages;
  while (!launched_all_ && groups_.may_launch(group_stages)) {
    const Next next = choose_stage();
    if (next == Next::kWait) {
      return;
    }
    if (next == Next::kEnd) {
      end();
      return;
    }
    const Nanos began = parts_.host->clock.now();
    if (!may_write_stage()) {
      begin_hold(began);
      return;
    }
    const int32_t end_stage = std::min(next_stage_ + group_stages, last_stage_ + 1);
    if (bind_group({.end_stage = end_stage}) != Bound::kSome && inputs_.rows == 0) {
      return;  // the binder takes no visitor now; it is asked again when something has changed
    }
    end_hold();
    lay_out_group();
    launch_group(end_stage);
    show_bind(began);
    next_stage_ = end_stage;
    if (next_stage_ > last_stage_) {
      end();
    }
  }
}

void StepRun::show_bind(Nanos began) const {
  if (parts_.host->binds != nullptr) {
    parts_.host->binds->add({.name = "bind and launch a group",
                             .begin = began,
                             .end = parts_.host->clock.now(),
                             .detail = "visitors",
                             .value = static_cast<int64_t>(visits_.size())});
  }
}

// The last stage writes no KV.
bool StepRun::may_write_stage() const {
  return !stages_prompts() || next_stage_ == last_stage_ ||
         parts_.host->staging->is_free(next_stage_);
}

// With residents every stage is passed. Without, the step skips to the first stage that has ready
// visitors and credits. If there is none it ends if it has taken a visitor, and else waits for a
// hop.
StepRun::Next StepRun::choose_stage() {
  if (inputs_.rows > 0) {
    return Next::kLaunch;
  }
  const HopQueues& hops = parts_.host->hops;
  for (int32_t stage = next_stage_; stage <= last_stage_; ++stage) {
    if (hops.ready(stage) > 0 && hops.credits(stage) > 0) {
      next_stage_ = stage;
      return Next::kLaunch;
    }
  }
  const bool more_may_come = hops.any_in_flight() || !groups_.empty();
  return visits_in_step_ == 0 && more_may_come ? Next::kWait : Next::kEnd;
}

BindView StepRun::view_of(const Scope& scope) {
  const HopQueues& hops = parts_.host->hops;
  const bool all = scope.lane == HopQueues::kAllLanes;
  ready_.clear();
  coming_.clear();
  credits_.clear();
  for (int32_t stage = next_stage_; stage < scope.end_stage; ++stage) {
    ready_.push_back(hops.ready(stage, scope.lane));
    coming_.push_back(all ? hops.coming_from_before(stage, first_ticket_)
                          : hops.coming(stage, scope.lane));
    credits_.push_back(hops.credits(stage));
  }
  const Nanos now = parts_.host->clock.now();
  BindView view = {.now = now,
                   .step = step_,
                   .mode = mode_,
                   .lane = all ? 0 : scope.lane,
                   .held = held_since_ ? now - *held_since_ : Nanos{0},
                   .first_stage = next_stage_,
                   .last_stage = last_stage_,
                   .resident_rows = all || lane_has_residents() ? inputs_.rows : 0,
                   .row_room = limits_.max_batched_tokens - inputs_.rows,
                   .logit_room = limits_.max_logit_rows - inputs_.sample_count - sampled_visitors_,
                   .ready = ready_,
                   .coming = coming_,
                   .credits = credits_};
  groups_.show(view);
  return view;
}

StepRun::Bound StepRun::bind_group(const Scope& scope) {
  const BindView view = view_of(scope);
  decision_.visitors.clear();
  decision_.wait = false;
  parts_.host->binder.bind(view, decision_);
  if (held_since_ == std::nullopt) {  // else they were counted when they were first asked for
    ready_in_step_ += std::accumulate(ready_.begin(), ready_.end(), int64_t{0});
  }
  if (decision_.wait) {
    CHECK(mode_ == StepMode::kLanes, "step {} has no lanes, but shall wait", step_);
    held_since_ = held_since_.value_or(view.now);
    return Bound::kNotYet;
  }
  CHECK(decision_.visitors.size() == ready_.size(), "a decision for {} stages of {}",
        decision_.visitors.size(), ready_.size());
  held_since_.reset();
  ++ticket_;
  visits_.clear();
  stage_ends_.clear();
  for (size_t i = 0; i < ready_.size(); ++i) {
    const int32_t stage = next_stage_ + static_cast<int32_t>(i);
    const int32_t room = stage == last_stage_ ? view.logit_room : view.row_room;
    const int32_t limit = std::min({decision_.visitors[i], room, parts_.host->hops.credits(stage)});
    if (limit > 0) {
      parts_.host->hops.bind(
          {.stage = stage, .lane = scope.lane, .limit = limit, .ticket = ticket_}, visits_);
    }
    stage_ends_.push_back(visits_.size());
  }
  visits_in_step_ += std::ssize(visits_);
  return visits_.empty() ? Bound::kNobody : Bound::kSome;
}

// ---------------------------------------------------------------- lanes

bool StepRun::lane_is_empty() const {
  const HopQueues& hops = parts_.host->hops;
  return !lane_has_residents() && hops.ready(next_stage_, next_lane_) == 0 &&
         hops.coming(next_stage_, next_lane_) == 0;
}

// A step of visitors alone that has taken none does not end while a hop may come back.
void StepRun::next_lane() {
  next_lane_ = (next_lane_ + 1) % piggyback::kLanes;
  next_stage_ += next_lane_ == 0 ? 1 : 0;
  if (next_stage_ > last_stage_) {
    const bool more_may_come = parts_.host->hops.any_in_flight() || !groups_.empty();
    if (inputs_.rows == 0 && visits_in_step_ == 0 && more_may_come) {
      next_stage_ = 0;
    } else {
      end();
    }
  }
}

void StepRun::count_second_lane() {
  if (next_stage_ == last_stage_) {
    second_.logits += static_cast<int32_t>(visits_.size());
  } else {
    second_.visits += std::ssize(visits_);
    ++second_.stages;
  }
}

void StepRun::begin_hold(Nanos now) {
  if (groups_.empty()) {
    idle_since_ = idle_since_.value_or(now);
  }
}

void StepRun::end_hold() {
  if (idle_since_.has_value()) {
    held_ += parts_.host->clock.now() - *idle_since_;
    idle_since_.reset();
  }
}

void StepRun::launch_lanes() {
  // Each stage of each lane at most once in a call, so that it ends where nobody can be taken.
  const int32_t most = (last_stage_ + 1) * piggyback::kLanes;
  for (int32_t asked = 0;
       asked < most && !launched_all_ && groups_.may_launch(parts_.host->group_stages); ++asked) {
    if (lane_is_empty()) {
      next_lane();
      continue;
    }
    const Nanos began = parts_.host->clock.now();
    if (lane_has_residents() && !may_write_stage()) {
      begin_hold(began);
      return;
    }
    const Bound bound = bind_group({.end_stage = next_stage_ + 1, .lane = next_lane_});
    if (bound == Bound::kNotYet) {
      begin_hold(began);
      return;
    }
    if (bound == Bound::kSome || lane_has_residents()) {
      end_hold();
      if (next_lane_ > 0) {
        count_second_lane();
      }
      lay_out_group();
      tails_.front().alone = next_lane_ > 0;
      launch_group(next_stage_ + 1);
      show_bind(began);
    }
    next_lane();
  }
}

// ---------------------------------------------------------------- launching a group

void StepRun::lay_out_group() {
  tails_.assign(stage_ends_.size(), TailRows{});
  visitor_samples_ = nullptr;
  if (visits_.empty()) {
    return;
  }
  const std::span<const Visit> all = visits_;
  const auto count = static_cast<int64_t>(visits_.size());
  const int64_t bytes = visitor_bytes(count);
  const StagingPlace place = staging_.next(bytes);
  VisitorWriter writer(count, place);
  size_t begin = 0;
  for (size_t i = 0; i < stage_ends_.size(); ++i) {
    tails_[i] = writer.add_stage(all.subspan(begin, stage_ends_[i] - begin));
    begin = stage_ends_[i];
  }
  parts_.device.launch(parts_.stream, CopyOp{place.device, place.host, bytes});
  if (next_stage_ + static_cast<int32_t>(stage_ends_.size()) > last_stage_) {
    const size_t last_begin = stage_ends_.size() < 2 ? 0 : stage_ends_[stage_ends_.size() - 2];
    lay_out_samples(all.subspan(last_begin));
  }
}

// The host's blocks of a visitor whose penalties look at them; good until the next one's.
std::span<const BlockId> StepRun::history_table(const SampleSpec& spec) {
  history_table_.clear();
  if (!HistoryBlocks::range_of(spec).empty()) {
    parts_.host->tokens.append_blocks(spec.sequence, history_table_);
  }
  return history_table_;
}

void StepRun::lay_out_samples(std::span<const Visit> visits) {
  if (visits.empty()) {
    return;
  }
  histories_.clear();
  StepSize size;
  for (const Visit& visit : visits) {
    const SampleSpec& spec = parts_.host->tokens.sample_of(visit.sequence);
    measure_sample(spec, history_table(spec), histories_, size);
  }
  const int64_t bytes = SampleRowWriter::bytes(size);
  const StagingPlace place = sample_staging_.next(bytes);
  SectionCarver carver(place);
  SampleRowWriter writer(size, histories_, carver);
  for (const Visit& visit : visits) {
    const SampleSpec& spec = parts_.host->tokens.sample_of(visit.sequence);
    writer.add(spec, history_table(spec));
    parts_.sampling.add_visitor(spec);
  }
  visitor_samples_ = writer.rows();
  parts_.device.launch(parts_.stream, CopyOp{place.device, place.host, bytes});
}

void StepRun::launch_group(int32_t end_stage) {
  routed_.clear();
  for (int32_t stage = next_stage_; stage < end_stage; ++stage) {
    const TailRows& tail = tails_[static_cast<size_t>(stage - next_stage_)];
    if (stage == last_stage_) {
      launch_last_stage(tail);
      continue;
    }
    const int32_t residents = tail.alone ? 0 : inputs_.rows;
    if (residents + tail.rows > 0) {
      parts_.stages.launch_stage(parts_.device, parts_.stream, inputs_, resident_ops_, stage, tail);
    }
    if (tail.rows > 0) {
      routed_.push_back(parts_.device.record_polled(parts_.stream));
    }
    if (residents > 0 && attends(stage)) {
      parts_.stages.launch_attention(parts_.device, parts_.stream, inputs_, resident_ops_, stage);
    }
    if (residents > 0 && stages_prompts()) {
      parts_.host->staging->copy_out(stage, parts_.device.record_polled(parts_.stream));
    }
  }
  last_event_ = parts_.device.record(parts_.stream);
  groups_.push({.step = step_,
                .ticket = ticket_,
                .done = *last_event_,
                .launched = parts_.host->clock.now(),
                .stages = {.first_stage = next_stage_, .end_stage = end_stage}});
  send_visitors();
}

// Behind the launch of the whole group, so that the stream that carries them is woken once for it.
void StepRun::send_visitors() {
  size_t begin = 0;
  size_t sent = 0;
  for (size_t i = 0; sent < routed_.size(); ++i) {
    if (tails_[i].rows > 0) {
      parts_.host->carrier.send(std::span(visits_).subspan(begin, stage_ends_[i] - begin),
                                routed_[sent]);
      ++sent;
    }
    begin = stage_ends_[i];
  }
}

}  // namespace tandem
