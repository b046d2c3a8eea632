// A device of a node, with what belongs to it for as long as it is open: the timeline that its
// streams write, and the reason for its kernels. Threads: open and end on one; pace() any.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/element_type.h"
#include "base/result.h"
#include "device/device.h"
#include "model/config.h"
#include "model/weight_formats.h"
#include "node/node_options.h"
#include "observe/records.h"
#include "observe/timeline.h"

namespace tandem {

class NodeDevice {
 public:
  // Opens the device that `options` ask for, with the kernels that suit a model of this shape and
  // element type. With memory nodes named, the calling thread and the threads that it starts later
  // stay on these.
  static Result<std::unique_ptr<NodeDevice>> open(const NodeOptions& options,
                                                  const model::ModelConfig& shape,
                                                  const model::WeightFormats& format);
  // One that exists already, such as a simulated one.
  static std::unique_ptr<NodeDevice> of(std::unique_ptr<device::Device> device);
  [[nodiscard]] device::Device& device() const { return *device_; }
  [[nodiscard]] const device::AcceleratorCaps& caps() const { return device_->caps(); }
  // Who chose the kernels; ends a sentence.
  [[nodiscard]] const std::string& kernels_from() const { return kernels_from_; }
  // Null: none was asked for.
  [[nodiscard]] observe::Timeline* timeline() const { return timeline_.get(); }
  // How a paced device has kept its pace; nullopt: nothing is paced.
  [[nodiscard]] std::optional<observe::PaceRecord> pace() const;
  // Logs that, and whether it makes the run valid as a measurement.
  void report_pace() const;

  // Ends the device, and with it the calls of completion listeners; then writes the timeline.
  // Nothing may use the device any more.
  void end();

 private:
  explicit NodeDevice(std::string timeline_out);

  const std::string timeline_out_;
  std::unique_ptr<observe::Timeline> timeline_;
  std::unique_ptr<device::Device> device_;  // null once it has ended
  std::string kernels_from_;
};

}  // namespace tandem
