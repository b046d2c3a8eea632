// What a shared library must export to be a back end:
//   extern "C" const tandem::device::DevicePlugin* tandem_device_plugin();
// It is built with the same compiler and headers as the program. It stays loaded to the process's
// end, because a device's code may run to its end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "device/device.h"
#include "device/open/open.h"

namespace tandem::device {

// Raised with every change of device.h, ops.h or of what they include.
inline constexpr int32_t kPluginVersion = 6;
inline constexpr const char* kPluginSymbol = "tandem_device_plugin";

struct DevicePlugin {
  int32_t version = kPluginVersion;
  const char* name = "";
  // No device of its kind in this machine is an ordinary error.
  Result<std::unique_ptr<Device>> (*open)(const DeviceSpec& spec) = nullptr;
  // What open() with these options would find, in words, without taking any of it. The same errors.
  Result<std::string> (*find)(const std::string& options) = nullptr;
};

using DevicePluginEntry = const DevicePlugin* (*)();

}  // namespace tandem::device
