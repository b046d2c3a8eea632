#include "device/cuda/stream_trace.h"

#include <algorithm>
#include <utility>

namespace tandem::device::cuda {
namespace {

constexpr double kNanosPerMilli = 1e6;
constexpr double kCountedNanos = 1e9;  // a float of milliseconds has not more digits
constexpr double kDrift = 1e-4;        // drift of the clocks, at most this share

cudaError_t nanos_between(cudaEvent_t begin, cudaEvent_t end, double& nanos) {
  float millis = 0;
  const cudaError_t error = cudaEventElapsedTime(&millis, begin, end);
  nanos = millis * kNanosPerMilli;
  return error;
}

}  // namespace

cudaError_t StreamTrace::open(cudaStream_t stream) {
  stream_ = stream;
  cudaError_t error = take(origin_);
  if (error == cudaSuccess) {
    error = cudaEventRecord(origin_, stream_);
  }
  if (error == cudaSuccess) {
    error = cudaStreamSynchronize(stream_);
  }
  origin_nanos_ = static_cast<double>(clock_.now().count());
  return error;
}

cudaError_t StreamTrace::take(cudaEvent_t& event) {
  {
    const std::lock_guard lock(mutex_);
    if (!spare_.empty()) {
      event = spare_.back();
      spare_.pop_back();
      return cudaSuccess;
    }
  }
  return cudaEventCreateWithFlags(&event, 0);
}

void StreamTrace::give_back(cudaEvent_t event) {
  const std::lock_guard lock(mutex_);
  spare_.push_back(event);
}

cudaError_t StreamTrace::begin() {
  {
    const std::lock_guard lock(mutex_);
    if (passing_.size() >= kMaxMarks) {
      return cudaSuccess;
    }
  }
  const cudaError_t error = take(begun_);
  return error == cudaSuccess ? cudaEventRecord(begun_, stream_) : error;
}

cudaError_t StreamTrace::end(const OpLabel& label) {
  if (begun_ == nullptr) {
    return cudaSuccess;
  }
  Mark mark{label, std::exchange(begun_, nullptr)};
  cudaError_t error = take(mark.end);
  if (error == cudaSuccess) {
    error = cudaEventRecord(mark.end, stream_);
  }
  const std::lock_guard lock(mutex_);
  passing_.push_back(mark);
  ++marked_;
  return error;
}

cudaError_t StreamTrace::show(int64_t marks) {
  while (shown_ < marks) {
    Mark mark;
    {
      const std::lock_guard lock(mutex_);
      mark = passing_.front();
      passing_.pop_front();
    }
    ++shown_;
    if (const cudaError_t error = add(mark); error != cudaSuccess) {
      return error;
    }
  }
  return cudaSuccess;
}

// The length is measured by itself: after a day without an op, the distance from `origin_` is known
// to some milliseconds.
cudaError_t StreamTrace::add(const Mark& mark) {
  double begin = 0;
  double length = 0;
  cudaError_t error = nanos_between(origin_, mark.begin, begin);
  if (error == cudaSuccess) {
    error = nanos_between(mark.begin, mark.end, length);
  }
  if (error != cudaSuccess) {
    return error;
  }
  const double counted = begin + length;
  const double lag = static_cast<double>(clock_.now().count()) - (origin_nanos_ + counted);
  if (origin_nanos_ + begin > last_nanos_ + kCountedNanos) {
    lag_.reset();  // it says nothing of the clocks after a pause
  }
  lag_ = std::min(lag_.value_or(lag), lag);
  const bool counted_long = counted > kCountedNanos;
  if (counted_long) {
    origin_nanos_ += std::min(*lag_, kDrift * counted);
  }
  begin = std::max(origin_nanos_ + begin, last_nanos_);
  last_nanos_ = std::max(origin_nanos_ + counted, begin);
  track_.add({.name = mark.label.name,
              .begin = Nanos{static_cast<int64_t>(begin)},
              .end = Nanos{static_cast<int64_t>(last_nanos_)},
              .detail = mark.label.detail,
              .value = mark.label.value});
  give_back(mark.begin);
  if (counted_long) {  // from here on the GPU counts from this end
    give_back(std::exchange(origin_, mark.end));
    origin_nanos_ += counted;
    lag_.reset();
  } else {
    give_back(mark.end);
  }
  return cudaSuccess;
}

cudaError_t StreamTrace::close() {
  cudaError_t error = cudaSuccess;
  const auto destroy = [&error](cudaEvent_t event) {
    if (event != nullptr && error == cudaSuccess) {
      error = cudaEventDestroy(event);
    }
  };
  destroy(origin_);
  destroy(begun_);
  for (const cudaEvent_t event : spare_) {
    destroy(event);
  }
  for (const Mark& mark : passing_) {
    destroy(mark.begin);
    destroy(mark.end);
  }
  return error;
}

}  // namespace tandem::device::cuda
