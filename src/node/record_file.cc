#include "node/record_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "node/request_json.h"

namespace tandem {
namespace {

constexpr size_t kMaxPendingBytes = size_t{64} << 20;  // that the disk may be behind

int64_t number_of(int64_t id) { return id; }
int64_t number_of(SequenceId id) { return raw(id); }
int64_t number_of(BlockId id) { return raw(id); }

template <class Id>
void append_ids(std::string& line, const std::vector<Id>& ids) {
  line += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    fmt::format_to(std::back_inserter(line), "{}{}", i == 0 ? "" : ",", number_of(ids[i]));
  }
  line += ']';
}

// Left out where there are none, so that records of one tier do not speak of two.
template <class Id>
void append_some(std::string& line, const char* name, const std::vector<Id>& ids) {
  if (!ids.empty()) {
    fmt::format_to(std::back_inserter(line), ",\"{}\":", name);
    append_ids(line, ids);
  }
}

void append_tokens(std::string& line, const std::vector<SampledToken>& samples) {
  line += '[';
  for (size_t i = 0; i < samples.size(); ++i) {
    fmt::format_to(std::back_inserter(line), "{}[{},{}]", i == 0 ? "" : ",",
                   raw(samples[i].sequence), samples[i].token);
  }
  line += ']';
}

}  // namespace

Result<std::unique_ptr<Recorder>> RecordFile::create(const std::string& path, int64_t limit_bytes,
                                                     const std::string& config) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    return Error{
        ErrorCode::kIo,
        fmt::format("cannot create the record file '{}': {}{}", path, std::strerror(errno),
                    errno == EEXIST ? "; remove it or name another with --record-out" : ""),
        "record-out"};
  }
  std::unique_ptr<RecordFile> file(new RecordFile(::fdopen(descriptor, "w"), limit_bytes));
  file->add_line(fmt::format(R"({{"tandem_record":1,"config":{}}})", config));
  return std::unique_ptr<Recorder>(std::move(file));
}

RecordFile::RecordFile(std::FILE* file, int64_t limit_bytes)
    : file_(file), limit_bytes_(limit_bytes) {
  writer_ = std::thread([this] { write_loop(); });
}

RecordFile::~RecordFile() {
  add_line(R"({"end":"closed"})");
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_one();
  writer_.join();
  std::fclose(file_);
}

void RecordFile::add_line(std::string line) {
  if (ended_) {
    return;
  }
  line += '\n';
  accepted_bytes_ += static_cast<int64_t>(line.size());
  const std::lock_guard lock(mutex_);
  const bool behind = pending_.size() + line.size() > kMaxPendingBytes;
  if (accepted_bytes_ > limit_bytes_ || behind || write_failed_) {
    ended_ = true;
    const char* reason = write_failed_ ? "the disk refused it"
                         : behind      ? "the disk is too slow"
                                       : "the size limit";
    log::warn("recording ended: {}", reason);
    line = fmt::format("{{\"end\":\"{}\"}}\n", reason);
  }
  pending_ += line;
  wake_.notify_one();
}

void RecordFile::write_loop() {
  std::string batch;
  while (true) {
    bool last = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return closing_ || !pending_.empty(); });
      batch.swap(pending_);
      last = closing_;
    }
    const bool written = std::fwrite(batch.data(), 1, batch.size(), file_) == batch.size() &&
                         std::fflush(file_) == 0;
    batch.clear();
    const std::lock_guard lock(mutex_);
    write_failed_ = write_failed_ || !written;
    if (last && pending_.empty()) {
      return;
    }
  }
}

void RecordFile::arrival(int64_t step, const Arrival& arrival, uint64_t seed) {
  nlohmann::json line = request_to_json(arrival.request);
  line["arrival"] = step;
  line["id"] = raw(arrival.id);
  line["at"] = arrival.arrived.count();
  line["seed"] = seed;
  if (arrival.forecast_ttft.has_value()) {
    line["forecast_ns"] = arrival.forecast_ttft->count();
  }
  if (arrival.believed_cached > 0) {
    line["believed_cached"] = arrival.believed_cached;
  }
  add_line(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void RecordFile::refusal(int64_t step, const AdmissionAsk& ask, const AdmissionVerdict& verdict) {
  std::string line = fmt::format(
      R"({{"refusal":{},"at":{},"level":{},"prompt_tokens":{},"cached_tokens":{},"n":{},"max_tokens":{},"reason":"{}")",
      step, ask.arrived.count(), ask.level, ask.prompt_tokens, ask.cached_tokens, ask.choices,
      ask.max_tokens, reason_name(verdict.reason));
  const auto append = [&](const char* name, Nanos time) {
    fmt::format_to(std::back_inserter(line), R"(,"{}":{})", name, time.count());
  };
  if (ask.ttft < Nanos::max()) {
    append("ttft_ns", ask.ttft);
  }
  if (ask.tpot < Nanos::max()) {
    append("tpot_ns", ask.tpot);
  }
  if (verdict.ttft.has_value()) {
    append("forecast_ns", *verdict.ttft);
  }
  if (verdict.retry_after.has_value()) {
    append("retry_after_ns", *verdict.retry_after);
  }
  line += "}";
  add_line(std::move(line));
}

void RecordFile::cancel(int64_t step, RequestId request) {
  add_line(fmt::format(R"({{"cancel":{},"id":{}}})", step, raw(request)));
}

void RecordFile::stop(int64_t step, RequestId request, int32_t choice) {
  add_line(fmt::format(R"({{"stop":{},"id":{},"choice":{}}})", step, raw(request), choice));
}

void RecordFile::tiers(int64_t step, const TierEvents& events) {
  std::string line = fmt::format(R"({{"tiers":{})", step);
  append_some(line, "done", events.transfers_done);
  append_some(line, "left", events.left);
  append_some(line, "failed", events.failed);
  append_some(line, "lost", events.lost_blocks);
  append_some(line, "found", events.found_blocks);
  line += "}";
  add_line(std::move(line));
}

void RecordFile::plan(const SystemView& view, const StepPlan& plan) {
  std::string line = fmt::format(R"({{"plan":{},"now":{},"view":"{:016x}","preempt":)", view.step,
                                 view.now.count(), view_digest(view));
  append_ids(line, plan.preempt);
  line += R"(,"admit":)";
  append_ids(line, plan.admit);
  line += R"(,"slices":[)";
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    fmt::format_to(std::back_inserter(line), "{}[{},{}]", i == 0 ? "" : ",",
                   raw(plan.slices[i].sequence), plan.slices[i].tokens);
  }
  line += "]";
  if (view.ready >= 0) {
    fmt::format_to(std::back_inserter(line), R"(,"ready":{})", view.ready);
  }
  append_some(line, "offload", plan.offload);
  append_some(line, "onload", plan.onload);
  append_some(line, "write_through", plan.write_through);
  line += "}";
  add_line(std::move(line));
}

void RecordFile::result(const StepResult& result, const StepTimes& times) {
  std::string line = fmt::format(R"({{"result":{},"ns":{})", result.step, times.measured.count());
  if (times.predicted > Nanos{0}) {
    fmt::format_to(std::back_inserter(line), R"(,"predicted_ns":{})", times.predicted.count());
  }
  if (times.visits > 0) {
    fmt::format_to(std::back_inserter(line), R"(,"visits":{})", times.visits);
  }
  line += R"(,"tokens":)";
  append_tokens(line, result.samples);
  if (!result.visitors.empty()) {
    line += R"(,"visitors":)";
    append_tokens(line, result.visitors);
  }
  line += "}";
  add_line(std::move(line));
}

}  // namespace tandem
