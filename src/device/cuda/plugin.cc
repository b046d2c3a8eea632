// The entry of the shared library libtandem_cuda (device/open/plugin.h).
#include "device/open/plugin.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/probe.h"

extern "C" const tandem::device::DevicePlugin* tandem_device_plugin() {
  static const tandem::device::DevicePlugin kPlugin{.name = "cuda",
                                                    .open = tandem::device::cuda::make_cuda_device,
                                                    .find = tandem::device::cuda::describe_gpu};
  return &kPlugin;
}
