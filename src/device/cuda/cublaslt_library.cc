#include "device/cuda/cublaslt_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>
#include <iterator>

namespace tandem::device::cuda {

CublasLt::~CublasLt() {
  if (handle_ != nullptr) {
    functions_.destroy(handle_);
  }
}

Result<std::unique_ptr<CublasLt>> CublasLt::open_one(const std::string& file) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Error{ErrorCode::kUnavailable, dlerror(), ""};
  }
  std::unique_ptr<CublasLt> opened(new CublasLt());
  void* symbols[std::size(lt::kFunctionNames)];
  for (size_t i = 0; i < std::size(symbols); ++i) {
    symbols[i] = dlsym(library, lt::kFunctionNames[i]);
    if (symbols[i] == nullptr) {
      return Error{ErrorCode::kUnavailable,
                   fmt::format("{} has no {}", file, lt::kFunctionNames[i]), ""};
    }
  }
  std::memcpy(&opened->functions_, symbols, sizeof(symbols));
  if (const lt::Status made = opened->functions_.create(&opened->handle_);
      made != lt::Status::kSuccess) {
    opened->handle_ = nullptr;
    return Error{ErrorCode::kUnavailable,
                 fmt::format("{} cannot be used with this GPU and driver (cuBLAS status {})", file,
                             static_cast<int>(made)),
                 ""};
  }
  return opened;
}

Result<std::unique_ptr<CublasLt>> CublasLt::open(const std::vector<std::string>& files) {
  std::string reasons;
  for (const std::string& file : files) {
    Result<std::unique_ptr<CublasLt>> opened = open_one(file);
    if (opened.ok()) {
      return opened;
    }
    // The same name elsewhere says no more.
    reasons = reasons.empty() ? opened.error().message : reasons;
  }
  return Error{ErrorCode::kUnavailable, reasons.empty() ? "no file is named" : reasons, ""};
}

std::string CublasLt::version() const {
  constexpr size_t kMajor = 10000;
  constexpr size_t kMinor = 100;
  const size_t version = functions_.version();
  return fmt::format("{}.{}.{}", version / kMajor, version % kMajor / kMinor, version % kMinor);
}

}  // namespace tandem::device::cuda
