#include "node/record_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "exec/code_digest.h"
#include "node/record_lines.h"
#include "node/request_json.h"

namespace tandem {
namespace {

constexpr size_t kMaxPendingBytes = size_t{64} << 20;  // that the disk may be behind

Error cannot_create(const std::string& path, int cause) {
  return {cause == EEXIST ? ErrorCode::kInvalidArgument : ErrorCode::kIo,
          fmt::format("cannot create the record file '{}': {}{}", path, std::strerror(cause),
                      cause == EEXIST ? "; remove it or name another with --record-out" : ""),
          "record-out"};
}

}  // namespace

Status RecordFile::check(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) {
    return cannot_create(path, EEXIST);
  }
  if (errno != ENOENT) {
    return cannot_create(path, errno);
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0) {
    return cannot_create(path, errno);
  }
  return {};
}

Result<std::unique_ptr<Recorder>> RecordFile::create(const std::string& path, int64_t limit_bytes,
                                                     const std::string& config) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    return cannot_create(path, errno);
  }
  std::unique_ptr<RecordFile> file(new RecordFile(::fdopen(descriptor, "w"), limit_bytes));
  file->add_line(fmt::format(R"({{"tandem_record":1,"view_digest":{},"build":"{}","config":{}}})",
                             kViewDigestVersion, kCodeDigest, config));
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
  add_line(tiers_line(step, events));
}

void RecordFile::plan(const SystemView& view, const StepPlan& plan) {
  if (ended_) {
    return;
  }
  add_line(plan_line(view, plan, kViewDigestVersion));
}

void RecordFile::bind(const BindView& view, const BindDecision& decision) {
  if (!ended_) {
    append_bind(binds_, view, decision);
  }
}

void RecordFile::result(const StepResult& result, const StepTimes& times) {
  if (!ended_) {
    add_line(result_line(result, times, binds_));
  }
  binds_.clear();
}

}  // namespace tandem
