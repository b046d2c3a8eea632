#include "device/sim/sim_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/units.h"
#include "device/cpu/host_formats.h"
#include "device/cpu/pages.h"

namespace tandem::device {
namespace {

constexpr int kNumberBits = 48;  // low bits of an EventId: the event's number in its stream

}  // namespace

// Address space that is given back to the device's counts.
class SimDevice::Bytes final : public Memory {
 public:
  Bytes(SimDevice& device, Pages pages, MemoryKind kind)
      : device_(device), pages_(std::move(pages)), kind_(kind) {}
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes() override {
    (kind_ == MemoryKind::kDevice ? device_.device_left_ : device_.host_left_) += pages_.bytes();
    std::erase_if(device_.memory_,
                  [this](const Range& range) { return range.begin == pages_.data(); });
  }
  [[nodiscard]] std::byte* data() const override { return pages_.data(); }
  [[nodiscard]] int64_t bytes() const override { return pages_.bytes(); }

 private:
  SimDevice& device_;
  Pages pages_;
  MemoryKind kind_;
};

SimDevice::SimDevice(VirtualTime& time, SimSpec spec)
    : time_(time),
      spec_(std::move(spec)),
      caps_{.name = fmt::format("simulated {}", spec_.name),
            .backend = "sim",
            .identity =
                fmt::format("simulated {}, link {:g} GB/s", spec_.name, spec_.link_bytes / 1e9),
            .kernels = "sim",
            .memory_bytes = spec_.memory_bytes,
            .free_memory_bytes = spec_.memory_bytes,
            .needs_weights = false},
      host_{.isa = kernels::Isa::kRef, .pinned_bytes = spec_.host_memory_bytes},
      device_left_(spec_.memory_bytes),
      host_left_(spec_.host_memory_bytes),
      to_host_{.bytes_per_second = spec_.link_bytes, .latency = spec_.link_latency},
      from_host_{.bytes_per_second = spec_.link_bytes, .latency = spec_.link_latency} {}

SimDevice::~SimDevice() = default;

const Formats& SimDevice::formats() const { return host_formats(); }

Result<std::unique_ptr<Memory>> SimDevice::allocate(const MemoryRequest& request) {
  const bool on_device = request.kind == MemoryKind::kDevice;
  // The pinned memory of a machine with one tier is the process's own.
  const bool bounded = on_device || spec_.host_memory_bytes > 0;
  int64_t& left = on_device ? device_left_ : host_left_;
  std::optional<Pages> pages =
      bounded && request.bytes > left ? std::nullopt : Pages::map(request.bytes);
  if (!pages.has_value()) {
    return Error{
        ErrorCode::kResourceExhausted,
        fmt::format("{} of simulated {} memory do not fit: {} are left",
                    format_bytes(request.bytes), on_device ? "device" : "host", format_bytes(left)),
        ""};
  }
  left -= pages->bytes();
  const Range range{pages->data(), pages->data() + pages->bytes(), request.kind};
  memory_.insert(std::upper_bound(memory_.begin(), memory_.end(), range,
                                  [](const Range& a, const Range& b) { return a.begin < b.begin; }),
                 range);
  return std::unique_ptr<Memory>(std::make_unique<Bytes>(*this, *std::move(pages), request.kind));
}

StreamId SimDevice::create_stream(StreamKind kind) {
  streams_.push_back(std::make_unique<SimStream>(time_, kind));
  streams_.back()->set_listener(&listener_);
  if (kind == StreamKind::kCompute) {
    streams_.back()->set_watcher(&watcher_);
    if (bandwidth_ != nullptr) {
      streams_.back()->share(*bandwidth_);
    }
  }
  return static_cast<StreamId>(streams_.size() - 1);
}

MemoryKind SimDevice::kind_of(const void* address) const {
  const auto* place = static_cast<const std::byte*>(address);
  const auto after =
      std::upper_bound(memory_.begin(), memory_.end(), place,
                       [](const std::byte* at, const Range& range) { return at < range.begin; });
  CHECK(after != memory_.begin() && place < std::prev(after)->end,
        "an address that is not the device's");
  return std::prev(after)->kind;
}

void SimDevice::compute(SimStream& stream, const Op& op) {
  const Nanos truth = spec_.measured != nullptr ? spec_.measured->time(op)
                                                : op_time(spec_.accelerator, op, spec_.group);
  const double factor = pace_ ? spec_.slowdown * pace_() : spec_.slowdown;
  const auto taken = [factor](Nanos time) {
    return Nanos{static_cast<int64_t>(static_cast<double>(time.count()) * factor)};
  };
  // How much of the memory a measured op needs is not known: it counts as all.
  const Nanos memory = bandwidth_ == nullptr || spec_.measured != nullptr
                           ? truth
                           : op_memory_time(spec_.accelerator, op, spec_.group);
  stream.run(taken(truth), taken(std::min(memory, truth)));
}

void SimDevice::launch(StreamId stream, const Op& op) {
  time_.spend(spec_.launch);
  SimStream& on = at(stream);
  if (const auto* copied = std::get_if<CopyOp>(&op)) {
    copy(on, *copied);
    return;
  }
  if (const auto* moved = std::get_if<KvMoveOp>(&op)) {
    copy(on, moved->copy);
    return;
  }
  if (const auto* samples = std::get_if<SampleOp>(&op)) {
    sample(*samples);
  }
  compute(on, op);
}

// Every sampled token differs from the last one: two answers never share a prefix by chance.
void SimDevice::sample(const SampleOp& op) {
  const auto note = [this](const void* begin, size_t bytes) {
    const auto* at = static_cast<const std::byte*>(begin);
    const Range range{at, at + bytes, MemoryKind::kDevice};
    for (Range& known : sampled_) {
      if (known.begin == range.begin) {
        known.end = std::max(known.end, range.end);
        return;
      }
    }
    sampled_.push_back(range);
  };
  const auto rows = static_cast<size_t>(op.row_count);
  note(op.results, rows * sizeof(kernels::SampleResult));
  if (op.tokens != nullptr) {
    note(op.tokens, rows * sizeof(int32_t));
  }
  for (size_t row = 0; row < rows; ++row) {
    next_token_ = (next_token_ + 1) % spec_.vocabulary;
    op.results[row] = {.token = next_token_};
    if (op.tokens != nullptr) {
      op.tokens[row] = next_token_;
    }
  }
}

void SimDevice::copy(SimStream& stream, const CopyOp& op) {
  const MemoryKind from = kind_of(op.source);
  const MemoryKind to = kind_of(op.target);
  if (from == to) {
    compute(stream, op);
    return;
  }
  const auto* source = static_cast<const std::byte*>(op.source);
  const bool is_read = std::ranges::any_of(sampled_, [source](const Range& range) {
    return source >= range.begin && source < range.end;
  });
  if (is_read) {
    std::memcpy(op.target, op.source, static_cast<size_t>(op.bytes));
  }
  stream.carry(to == MemoryKind::kHostPinned ? to_host_ : from_host_, op.bytes);
}

EventId SimDevice::add_event(StreamId stream, bool quiet) {
  time_.spend(spec_.launch);
  return static_cast<EventId>((static_cast<int64_t>(stream) << kNumberBits) |
                              at(stream).record(quiet));
}

void SimDevice::wait(StreamId stream, EventId event) {
  time_.spend(spec_.launch);
  const auto number = static_cast<int64_t>(event);
  at(stream).wait(*streams_[static_cast<size_t>(number >> kNumberBits)],
                  number & ((int64_t{1} << kNumberBits) - 1));
}

bool SimDevice::query(EventId event) const {
  const auto number = static_cast<int64_t>(event);
  return streams_[static_cast<size_t>(number >> kNumberBits)]->is_done(
      number & ((int64_t{1} << kNumberBits) - 1));
}

void SimDevice::synchronize(EventId event) {
  const bool completed = time_.step_until([&] { return query(event); });
  CHECK(completed, "nothing is left that could complete an event");
}

DeviceStatistics SimDevice::statistics() const {
  DeviceStatistics sum;
  for (const auto& stream : streams_) {
    sum.streams.push_back(stream->statistics());
  }
  sum.device_to_host_bytes = to_host_.bytes;
  sum.host_to_device_bytes = from_host_.bytes;
  return sum;
}

}  // namespace tandem::device
