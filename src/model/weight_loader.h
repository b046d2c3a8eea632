// The copying half of load_weights: streams the tensors of a weight source, tile by tile in file
// order, through a device's uploads. Checker threads map a tile's pages and look for values that
// are not finite just ahead of the device, so that the source is read from memory once; pages are
// let go as soon as the device is done with them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/result.h"
#include "device/device.h"
#include "model/weight_plan.h"
#include "model/weight_source.h"
#include "model/weights.h"

namespace tandem::model {

// Every job's tensor must be in `source` with the job's shape and a type. Returns when the
// device has finished.
Status copy_weights(const WeightSource& source, std::span<const WeightJob> jobs,
                    device::Device& device,
                    const std::function<void(const LoadProgress&)>& on_progress);

}  // namespace tandem::model
