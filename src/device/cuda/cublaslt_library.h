// Finds cuBLASLt at run time. Threads: any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/cuda/cublaslt_api.h"

namespace tandem::device::cuda {

// An open cuBLASLt with a handle for the current GPU. The library stays loaded to the process's
// end.
class CublasLt {
 public:
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // The first of these files that is one. Errors: kUnavailable with the reasons.
  static Result<std::unique_ptr<CublasLt>> open(const std::vector<std::string>& files);

  [[nodiscard]] const lt::Functions& functions() const { return functions_; }
  [[nodiscard]] lt::Handle handle() const { return handle_; }
  [[nodiscard]] std::string version() const;  // "13.0.2"
  // The GPU is lost: nothing is released.
  void forsake() { handle_ = nullptr; }

 private:
  CublasLt() = default;
  static Result<std::unique_ptr<CublasLt>> open_one(const std::string& file);

  lt::Functions functions_ = {};
  lt::Handle handle_ = nullptr;
};

// Where cuBLASLt is looked for if no file is named: as the dynamic linker finds it, in the toolkit,
// and in the Python packages of an active virtual environment.
std::vector<std::string> cublaslt_files();

}  // namespace tandem::device::cuda
