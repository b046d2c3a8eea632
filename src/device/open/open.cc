#include "device/open/open.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "device/emulated/emulated_accelerator.h"
#include "device/open/plugin.h"

namespace tandem::device {
namespace {

Result<std::unique_ptr<Device>> open_emulated(const DeviceSpec& spec) {
  if (spec.device_memory_bytes == 0 || spec.host_memory_bytes == 0) {
    return invalid_argument(
        "an emulated accelerator needs the sizes of both memories: give --device-memory and "
        "--host-memory, e.g. --device-memory 4GiB --host-memory 8GiB",
        spec.device_memory_bytes == 0 ? "device-memory" : "host-memory");
  }
  ASSIGN_OR_RETURN(EmulationSpec emulation, parse_emulation_spec(spec.accelerator->options));
  ASSIGN_OR_RETURN(std::unique_ptr<EmulatedAccelerator> device,
                   make_emulated_accelerator({.spec = std::move(emulation),
                                              .device_memory_bytes = spec.device_memory_bytes,
                                              .host_memory_bytes = spec.host_memory_bytes,
                                              .isa = spec.cpu.isa,
                                              .products = spec.cpu.products,
                                              .timeline = spec.timeline}));
  return std::unique_ptr<Device>(std::move(device));
}

struct BackEnd {
  std::string_view name;
  Result<std::unique_ptr<Device>> (*open)(const DeviceSpec& spec);
};
constexpr std::array kBackEnds = {
    BackEnd{"cpu", [](const DeviceSpec& spec) { return make_cpu_device(spec.cpu); }},
    BackEnd{kEmulatedBackend, open_emulated}};

// The file of a plugin: the name itself, or the library of that name beside the program, as a build
// has it, or in lib/tandem, where it is installed.
Result<std::string> plugin_file(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return name;
  }
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string library = fmt::format("libtandem_{}.so", name);
  const auto file = program.parent_path() / library;
  const auto installed = program.parent_path().parent_path() / "lib" / "tandem" / library;
  if (!std::filesystem::exists(file, error)) {
    if (std::filesystem::exists(installed, error)) {
      return installed.string();
    }
    return Error{
        ErrorCode::kUnavailable,
        fmt::format("{}: absent: '{}' is not there; it is built where CMake finds nvcc 13: "
                    "install that (tools/gpu/install_nvcc.sh) and build again, or use "
                    "--device cpu",
                    name, file.string()),
        "device"};
  }
  return file.string();
}

Result<const DevicePlugin*> load_plugin(const std::string& name) {
  ASSIGN_OR_RETURN(const std::string file, plugin_file(name));
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return invalid_argument(fmt::format("'{}' is not a device back end: {}; built in are cpu and "
                                        "{}, other names are those of plugins",
                                        file, dlerror(), kEmulatedBackend),
                            "device");
  }
  void* symbol = dlsym(library, kPluginSymbol);
  if (symbol == nullptr) {
    return invalid_argument(
        fmt::format("'{}' is not a device back end: it does not export {}", file, kPluginSymbol),
        "device");
  }
  const DevicePlugin* plugin = reinterpret_cast<DevicePluginEntry>(symbol)();
  if (plugin == nullptr || plugin->version != kPluginVersion || plugin->open == nullptr ||
      plugin->find == nullptr) {
    return invalid_argument(
        fmt::format("the device back end '{}' was built for version {} of the interface, this "
                    "program has version {}; build both from the same source",
                    file, plugin == nullptr ? 0 : plugin->version, kPluginVersion),
        "device");
  }
  return plugin;
}

}  // namespace

Result<AcceleratorSpec> accelerator_spec(std::string backend, std::string options) {
  AcceleratorSpec spec{.backend = std::move(backend), .options = std::move(options)};
  if (spec.backend == kEmulatedBackend) {
    ASSIGN_OR_RETURN(const EmulationSpec emulation, parse_emulation_spec(spec.options));
    spec.hollow = emulation.hollow;
    spec.link_bytes_per_second = emulation.link_bytes_per_second();
    spec.worker_faults = emulation.worker_faults;
    spec.fault_seed = emulation.fault_seed;
    if (emulation.held > 0 || !emulation.worker_faults.empty()) {
      spec.drill = describe_pace(emulation);
    }
  }
  return spec;
}

bool has_plugin(const std::string& backend) {
  const Result<std::string> file = plugin_file(backend);
  std::error_code error;
  return file.ok() && std::filesystem::exists(*file, error);
}

Result<std::string> find_device(const AcceleratorSpec& accelerator) {
  ASSIGN_OR_RETURN(const DevicePlugin* plugin, load_plugin(accelerator.backend));
  return plugin->find(accelerator.options);
}

Result<std::unique_ptr<Device>> open(const DeviceSpec& spec) {
  const std::string name = spec.accelerator.has_value() ? spec.accelerator->backend : "cpu";
  for (const BackEnd& own : kBackEnds) {
    if (name == own.name) {
      return own.open(spec);
    }
  }
  ASSIGN_OR_RETURN(const DevicePlugin* plugin, load_plugin(name));
  return plugin->open(spec);
}

}  // namespace tandem::device
