// Collects what the ops of a device take, and makes a simulated machine's truth of it: the table
// that SimSpec::measured holds, and its file (JSON; `tandem profile --op-times`, `tandem simulate
// --op-times`). A table is of one model on one machine.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/op_listener.h"
#include "device/sim/op_table.h"
#include "model/config.h"

namespace tandem::sim {

class OpMeasures final : public device::OpListener {
 public:
  void add(const device::Op& op, Nanos time) override;  // any thread
  // Forgets everything, such as what loading and choosing kernels took.
  void clear();
  // Means without the longest of each amount, which were interrupted. Not while `add` is called.
  [[nodiscard]] device::OpTable table() const;

 private:
  struct Attended {
    device::AttentionFeatures features;
    double nanos = 0;
  };
  using Times = std::map<int64_t, std::vector<float>>;  // of an amount

  std::mutex mutex_;
  std::map<device::OpKey, Times> times_;  // guarded by mutex_
  std::vector<Attended> attended_;        // guarded by mutex_
};

// A table with where it comes from.
struct MeasuredOps {
  std::string machine;
  int64_t memory_bytes = 0;
  // Of the model: layers, hidden, intermediate, heads, heads of K and V, vocabulary.
  std::array<int64_t, 6> shape{};
  std::shared_ptr<const device::OpTable> table;
};

std::array<int64_t, 6> shape_of(const model::ModelConfig& config);

// Errors: the file cannot be written.
Status write_measured_ops(const MeasuredOps& measured, const std::string& path);
// Errors: the file cannot be read or is not of write_measured_ops; they name the field.
Result<MeasuredOps> read_measured_ops(const std::string& path);

}  // namespace tandem::sim
