// Apart from cublaslt_library.cc, because tests must not find a machine's own library.
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "device/cuda/cublaslt_library.h"

namespace tandem::device::cuda {
namespace {

constexpr const char* kFile = "libcublasLt.so.13";

// ENVIRONMENT/lib/python3.N/site-packages/nvidia/PACKAGE/lib/libcublasLt.so.13
void add_packages(const std::filesystem::path& environment, std::vector<std::string>& files) {
  std::error_code error;
  for (const auto& python : std::filesystem::directory_iterator(environment / "lib", error)) {
    const auto packages = python.path() / "site-packages" / "nvidia";
    std::error_code none;
    for (const auto& package : std::filesystem::directory_iterator(packages, none)) {
      const auto file = package.path() / "lib" / kFile;
      if (std::filesystem::exists(file, none)) {
        files.push_back(file.string());
      }
    }
  }
}

}  // namespace

std::vector<std::string> cublaslt_files() {
  std::vector<std::string> files = {kFile, std::string("/usr/local/cuda/lib64/") + kFile};
  if (const char* active = std::getenv("VIRTUAL_ENV")) {  // NOLINT(concurrency-mt-unsafe)
    add_packages(active, files);
  }
  return files;
}

}  // namespace tandem::device::cuda
