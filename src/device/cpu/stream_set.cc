#include "device/cpu/stream_set.h"

#include <system_error>
#include <utility>

#include "base/check.h"

namespace tandem::device {
namespace {

// An event's id holds its stream in the upper bits and its number on that stream in the lower.
constexpr int kEventNumberBits = 48;

}  // namespace

EventId StreamSet::pack(const EventName& name) {
  return static_cast<EventId>((int64_t{name.stream} << kEventNumberBits) | name.number);
}

StreamSet::EventName StreamSet::unpack(EventId event) {
  return {static_cast<int32_t>(raw(event) >> kEventNumberBits),
          raw(event) & ((int64_t{1} << kEventNumberBits) - 1)};
}

StreamId StreamSet::stream_of(EventId event) { return static_cast<StreamId>(unpack(event).stream); }

StreamSet::~StreamSet() {
  for (const auto& stream : streams_) {
    if (stream) {
      stream->stop();
    }
  }
}

StreamId StreamSet::add(std::unique_ptr<StreamWork> work, const CpuStreamOptions& options) {
  const int32_t index = count_.load(std::memory_order_relaxed);
  CHECK(index < static_cast<int32_t>(streams_.size()), "more than {} streams", index);
  try {
    streams_[static_cast<size_t>(index)] = std::make_unique<CpuStream>(std::move(work), options);
  } catch (const std::system_error& error) {
    CHECK(false, "cannot start a stream's thread: {}", error.what());
  }
  count_.store(index + 1, std::memory_order_release);
  return static_cast<StreamId>(index);
}

EventId StreamSet::record(StreamId stream) {
  return pack({raw(stream), at(raw(stream)).record(listener_)});
}

EventId StreamSet::record_polled(StreamId stream) {
  return pack({raw(stream), at(raw(stream)).record(nullptr)});
}

void StreamSet::wait(StreamId stream, EventId event) {
  const EventName name = unpack(event);
  at(raw(stream)).wait(at_recorded(name), name.number);
}

bool StreamSet::query(EventId event) const {
  const EventName name = unpack(event);
  return at_recorded(name).completed(name.number);
}

void StreamSet::synchronize(EventId event) {
  const EventName name = unpack(event);
  at_recorded(name).synchronize(name.number);
}

void StreamSet::set_listener(std::function<void()> on_event) {
  // Streams may still call the one before.
  listeners_.push_back(std::make_unique<std::function<void()>>(std::move(on_event)));
  listener_ = listeners_.back().get();
}

void StreamSet::no_stream(int32_t index) { CHECK(false, "stream {}", index); }

CpuStream& StreamSet::at_recorded(const EventName& name) const {
  CpuStream& stream = at(name.stream);
  CHECK(name.number >= 1 && name.number <= stream.recorded(), "event {} of stream {}", name.number,
        name.stream);
  return stream;
}

}  // namespace tandem::device
