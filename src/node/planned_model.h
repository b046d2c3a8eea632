// A model before its weights are there, in two steps. Opened: its small files are read, the types
// of its numbers are chosen and it has a device. Planned: its policy, the step times that are known
// and its memory are settled too. This takes little time, so that a server can listen and report
// that it is loading while load_model (loaded_model.h) works.
//
// Plain data, fixed once made: any thread may read it. Borrows the device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "latency/profile.h"
#include "model/model_folder.h"
#include "node/memory_plan.h"
#include "node/node_device.h"
#include "node/node_options.h"

namespace tandem {

struct OpenedModel {
  NodeDevice& device;
  model::ModelFolder folder;
  model::WeightFormats format;
  ElementType kv_dtype = ElementType::kBF16;
};

struct PlannedModel : OpenedModel {
  std::string policy_name;                  // never "auto"
  std::optional<latency::Profile> profile;  // absent: not wanted, or to be measured once loaded
  MemoryPlan plan;
};

// A planned model and the device that it was planned for.
struct SoleModel {
  std::unique_ptr<NodeDevice> device;
  PlannedModel model;
};

// Reads the small files of the folder that `options` name, opens the device and plans the model for
// it. Afterwards `options` name the policy and, with `automatic_gpu`, the device that was chosen.
Result<SoleModel> open_model(NodeOptions& options, const Clock& clock);
// The same for a shape that needs no files: a hollow device has no use for weights.
Result<SoleModel> plan_model(model::ModelFolder folder, NodeOptions& options, const Clock& clock);
// The same for a device that is open already.
Result<SoleModel> plan_model(model::ModelFolder folder, std::unique_ptr<NodeDevice> device,
                             NodeOptions& options, const Clock& clock);

// Sequences that run at a time. Each that decodes needs a row of every step, and visitors need some
// beside them; with fewer rows the newest sequences would never have a turn.
int32_t running_sequences(const NodeOptions& options);

// True: something must be measured in the loaded model before its policy can be made.
bool needs_measuring(const NodeOptions& options, const PlannedModel& model);

}  // namespace tandem
