// Arrays side by side in one piece of staging memory: filled on the host, addressed where they will
// lie on the device. Internal to the layouts of exec/. Engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "exec/batch_layout.h"
#include "kernels/sample.h"
#include "plan/step.h"

namespace tandem {

inline constexpr int64_t kSectionAlignment = 64;

template <class T>
constexpr int64_t section_bytes(int64_t count) {
  return (count * static_cast<int64_t>(sizeof(T)) + kSectionAlignment - 1) / kSectionAlignment *
         kSectionAlignment;
}

// An array being filled on the host, and its address on the device.
template <class T>
class Section {
 public:
  Section(T* host, const T* device) : host_(host), device_(device) {}
  [[nodiscard]] const T* device() const { return device_; }
  [[nodiscard]] const T* device_end() const { return device_ + count_; }
  [[nodiscard]] T* host() const { return host_; }
  void add(const T& value) { host_[count_++] = value; }
  // One with its defaults, to be filled in.
  T& add() { return host_[count_++] = T{}; }
  // `count` of them, to be written.
  T* add_room(int64_t count) {
    count_ += count;
    return host_ + (count_ - count);
  }
  // Copies a run and returns where it will lie; T and U have the same representation.
  template <class U>
  const T* add_all(const U* values, size_t count) {
    const T* begin = device_end();
    for (size_t i = 0; i < count; ++i) {
      add(T{values[i]});
    }
    return begin;
  }

 private:
  T* host_;
  const T* device_;
  int64_t count_ = 0;
};

class SectionCarver {
 public:
  explicit SectionCarver(const StagingPlace& place) : place_(place) {}
  template <class T>
  Section<T> take(int64_t count) {
    const int64_t offset = used_;
    used_ += section_bytes<T>(count);
    return {reinterpret_cast<T*>(place_.host + offset),
            reinterpret_cast<const T*>(place_.device + offset)};
  }

 private:
  const StagingPlace place_;
  int64_t used_ = 0;
};

// Adds what one more sample needs to `size`. `table`: the KV blocks of its sequence.
inline void measure_sample(const SampleSpec& spec, std::span<const BlockId> table,
                           HistoryBlocks& histories, StepSize& size) {
  CHECK(spec.params != nullptr, "a sample of sequence {} without parameters", raw(spec.sequence));
  ++size.samples;
  size.banned += std::ssize(spec.banned);
  size.biases += std::ssize(spec.params->logit_bias);
  const HistoryBlocks::Range history = HistoryBlocks::range_of(spec);
  if (!history.empty()) {
    histories.add(history, table);
    size.history_tokens = histories.tokens();
    size.history_tables += histories.table_entries(history);
  }
}

// The rows that sampling reads, with the histories, bans and biases that they point to.
class SampleRowWriter {
 public:
  static int64_t bytes(const StepSize& size);  // of all that measure_sample counts
  SampleRowWriter(const StepSize& size, HistoryBlocks& histories, SectionCarver& carver);

  void add(const SampleSpec& spec, std::span<const BlockId> table);
  [[nodiscard]] const kernels::SampleRow* rows() const { return rows_.device(); }

 private:
  HistoryBlocks& histories_;
  Section<kernels::SampleRow> rows_;  // first: see batch_layout.h on addresses
  Section<int32_t> banned_;
  Section<kernels::TokenBias> biases_;
  Section<int32_t> history_;
  Section<int32_t> history_tables_;
};

}  // namespace tandem
