// Opens a device by the name of its back end: "cpu" and "emulated" are built in, a name with '/' is
// the file of a plugin (plugin.h), and any other NAME is the plugin libtandem_NAME.so beside the
// program. The one place that knows which back ends there are.
//
// Threads: any; but a device's own rules hold from then on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "device/cpu/cpu_device.h"
#include "device/device.h"
#include "observe/timeline.h"

namespace tandem::device {

inline constexpr const char* kEmulatedBackend = "emulated";

// An accelerator with memory of its own, beside the host's. Made by accelerator_spec().
struct AcceleratorSpec {
  std::string backend = kEmulatedBackend;  // a built-in name, or a plugin's file
  std::string options = {};                // in the back end's own words; empty: its defaults
  bool hollow = false;                     // computes nothing that depends on weights
  double link_bytes_per_second = 0;        // as modelled; 0: not paced
  // What else was asked for in the options and is not the device's to do: see the emulated
  // accelerator's spec on faults.
  std::string worker_faults = {};
  uint64_t fault_seed = 1;
  std::string drill = {};  // what is said of planted faults; empty: there are none
};

// Checks the options as far as the back end can without opening a device. Errors name the item.
Result<AcceleratorSpec> accelerator_spec(std::string backend, std::string options);

struct DeviceSpec {
  CpuDeviceOptions cpu;  // with an accelerator only its kernels and products count
  std::optional<AcceleratorSpec> accelerator = {};  // absent: the cpu device, one tier
  int64_t device_memory_bytes = 0;                  // two tiers only
  int64_t host_memory_bytes = 0;
  observe::Timeline* timeline = nullptr;  // outlives the device; null: nothing is recorded
};

// Whether the plugin's file is there; it may be of no use all the same.
bool has_plugin(const std::string& backend);

// What a plugin's device would be, in words; no memory is taken. The same errors as open().
Result<std::string> find_device(const AcceleratorSpec& accelerator);

// Errors: those of the back end; a plugin that is not there, is none, or was built for another
// version of this interface.
Result<std::unique_ptr<Device>> open(const DeviceSpec& spec);

}  // namespace tandem::device
