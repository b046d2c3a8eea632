// Which kernels a node computes with, and who decided it: what was asked for, the profile or the
// record that the run belongs to, an earlier start on this machine, or a measurement now. One
// build of Tandem so takes the same kernels for a model at every start on a machine, and gives the
// same texts.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "device/cpu/kernel_choice.h"
#include "device/device.h"
#include "kernels/choice.h"
#include "model/config.h"
#include "model/weight_formats.h"
#include "node/node_options.h"

namespace tandem {

struct RunKernels {
  std::optional<kernels::Choice> choice;         // absent: the device chooses,
  std::optional<device::ProductShape> products;  // by measuring these, if there are some
  std::string from;                              // who decided; ends a sentence
  std::filesystem::path kept;                    // where a measured choice is to be kept; or empty
};

// Before the device is opened. Reads small files.
RunKernels find_kernels(const NodeOptions& options, const model::ModelConfig& shape,
                        const model::WeightFormats& format);

// After it was opened: keeps what was measured, and says what came of it. Returns who decided.
std::string settle_kernels(const RunKernels& run, const device::AcceleratorCaps& caps);

// For a replay: puts the kernels that a record names into `chosen`, unless others were asked for
// there. The last bits of the recorded tokens depend on them: returns a sentence for the user where
// other kernels are used, and nothing where they are the same.
std::string use_recorded_kernels(const std::string& recorded,
                                 std::optional<kernels::Choice>& chosen);

}  // namespace tandem
