// A plugin for open_test.cc: a back end whose hardware is in no machine.
#include "device/open/plugin.h"

extern "C" const tandem::device::DevicePlugin* tandem_device_plugin() {
  static const tandem::device::DevicePlugin kPlugin{
      .version = tandem::device::kPluginVersion + TEST_PLUGIN_VERSIONS_AHEAD,
      .name = "test",
      .open = [](const tandem::device::DeviceSpec& spec)
          -> tandem::Result<std::unique_ptr<tandem::device::Device>> {
        return tandem::Error{tandem::ErrorCode::kUnavailable,
                             "no device of this kind, asked for " + spec.accelerator->options, ""};
      },
      .find = [](const std::string& options) -> tandem::Result<std::string> {
        return "a device of tests, asked for " + options;
      }};
  return &kPlugin;
}
