#include "observe/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace tandem::observe {
namespace {

std::string json_text(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

// The format counts in microseconds.
std::string micros(Nanos time) {
  const int64_t nanos = time.count();
  return fmt::format("{}.{:03}", nanos / 1000, nanos % 1000);
}

std::string named(std::string_view what, size_t process, size_t thread, std::string_view name) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what,
                     process, thread, json_text(name));
}

// `zero` is where the trace begins.
std::string span_line(const Span& span, size_t process, size_t thread, Nanos zero) {
  std::string line = fmt::format(R"({{"ph":"X","name":{},"pid":{},"tid":{},"ts":{},"dur":{})",
                                 json_text(span.name), process, thread, micros(span.begin - zero),
                                 micros(std::max(span.end - span.begin, Nanos{0})));
  if (span.detail != nullptr) {
    line += fmt::format(R"(,"args":{{{}:{}}})", json_text(span.detail), span.value);
  }
  return line + '}';
}

}  // namespace

Track::Track(std::string group, std::string name, int64_t capacity)
    : group_(std::move(group)),
      name_(std::move(name)),
      capacity_(capacity),
      slots_(std::make_unique<Slot[]>(static_cast<size_t>(capacity))) {}

void Track::add(const Span& span) {
  const int64_t number = added_.load(std::memory_order_relaxed);
  begun_.store(number + 1, std::memory_order_relaxed);
  // Release: a reader that sees any part of the span below also sees the number above.
  Slot& slot = slots_[static_cast<size_t>(number % capacity_)];
  slot.name.store(span.name, std::memory_order_release);
  slot.begin.store(span.begin.count(), std::memory_order_release);
  slot.end.store(span.end.count(), std::memory_order_release);
  slot.detail.store(span.detail, std::memory_order_release);
  slot.value.store(span.value, std::memory_order_release);
  added_.store(number + 1, std::memory_order_release);
}

std::vector<Span> Track::spans() const {
  const int64_t end = added_.load(std::memory_order_acquire);
  const int64_t first = std::max<int64_t>(end - capacity_, 0);
  std::vector<Span> spans;
  spans.reserve(static_cast<size_t>(end - first));
  for (int64_t number = first; number < end; ++number) {
    const Slot& slot = slots_[static_cast<size_t>(number % capacity_)];
    spans.push_back({.name = slot.name.load(std::memory_order_acquire),
                     .begin = Nanos{slot.begin.load(std::memory_order_acquire)},
                     .end = Nanos{slot.end.load(std::memory_order_acquire)},
                     .detail = slot.detail.load(std::memory_order_acquire),
                     .value = slot.value.load(std::memory_order_acquire)});
  }
  const int64_t overwritten = begun_.load(std::memory_order_relaxed) - capacity_ - first;
  if (overwritten > 0) {
    spans.erase(spans.begin(),
                spans.begin() + std::min<int64_t>(overwritten, static_cast<int64_t>(spans.size())));
  }
  return spans;
}

Timeline::Timeline(int64_t spans_per_track) : spans_per_track_(spans_per_track) {
  CHECK(spans_per_track >= 1, "{} spans per track", spans_per_track);
}

Track& Timeline::add_track(const std::string& group, const std::string& name) {
  auto track = std::make_unique<Track>(group, name, spans_per_track_);
  const std::lock_guard lock(mutex_);
  tracks_.push_back(std::move(track));
  return *tracks_.back();
}

std::string Timeline::chrome_trace() const {
  std::vector<const Track*> tracks;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& track : tracks_) {
      tracks.push_back(track.get());
    }
  }
  std::vector<std::vector<Span>> spans;
  Nanos zero = Nanos::max();
  for (const Track* track : tracks) {
    spans.push_back(track->spans());
    for (const Span& span : spans.back()) {
      zero = std::min(zero, span.begin);
    }
  }
  std::vector<std::string> groups;
  std::string json = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  std::string_view separator = "\n";
  const auto add_line = [&](const std::string& line) {
    json += separator;
    json += line;
    separator = ",\n";
  };
  for (size_t thread = 0; thread < tracks.size(); ++thread) {
    const std::string& group = tracks[thread]->group();
    const auto found = std::find(groups.begin(), groups.end(), group);
    const auto process = static_cast<size_t>(found - groups.begin());
    if (found == groups.end()) {
      groups.push_back(group);
      add_line(named("process_name", process, thread, group));
    }
    add_line(named("thread_name", process, thread, tracks[thread]->name()));
    for (const Span& span : spans[thread]) {
      add_line(span_line(span, process, thread, zero));
    }
  }
  return json + "\n]}\n";
}

Status Timeline::write_chrome_trace(const std::filesystem::path& file) const {
  std::ofstream out(file, std::ios::binary);
  out << chrome_trace();
  out.close();
  if (!out) {
    return Error{
        ErrorCode::kIo,
        fmt::format("cannot write the timeline {}: {}; name a file in a folder that can be "
                    "written",
                    file.string(), std::generic_category().message(errno)),
        {}};
  }
  return {};
}

}  // namespace tandem::observe
