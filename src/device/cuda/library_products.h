// Products by cuBLASLt. Weights lie as the plain kernels have them, row-major [n, k], which
// column-major is k x n: so Y^T = (W^T)^T X^T needs no second copy of them.
//
// An algorithm is asked for once for each (matrix shape, strides, alignments, bucket of rows), of
// the bucket's largest number of rows, and serves all numbers of rows in it: a row's result is the
// same in any company within a bucket. Buckets end at powers of two. If the depth is divided, its
// parts are added in a fixed order, so that results are the same in every run. What the library has
// no algorithm for is left to the plain kernel, always.
//
// Threads: one at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "device/cuda/cublaslt_library.h"
#include "device/ops.h"

namespace tandem::device::cuda {

// "whole": no product divides its depth. By default a product does if the library advises it,
// in parts that are summed in a fixed order.
inline constexpr const char* kDepthVariable = "TANDEM_CUDA_DEPTH";

class LibraryProducts {
 public:
  // Device memory that a product may use while it runs, aligned to 256 bytes.
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

  explicit LibraryProducts(std::unique_ptr<CublasLt> library);
  ~LibraryProducts();
  LibraryProducts(const LibraryProducts&) = delete;
  LibraryProducts& operator=(const LibraryProducts&) = delete;

  // CUDA's answer to the launch; nullopt: the library does not serve the op, nothing was launched.
  std::optional<cudaError_t> launch(cudaStream_t stream, const GemmOp& op, std::byte* workspace);

  [[nodiscard]] std::string version() const { return library_->version(); }
  void forsake() { library_->forsake(); }

  static int64_t bucket_of(int64_t rows);  // the largest number of rows in the bucket of this one

 private:
  struct Key {
    int64_t n = 0;
    int64_t k = 0;
    ElementType type = ElementType::kBF16;  // of x and w
    ElementType y_type = ElementType::kF32;
    int64_t x_stride = 0;
    int64_t y_stride = 0;
    uint32_t x_alignment = 0;
    uint32_t w_alignment = 0;
    uint32_t y_alignment = 0;
    uint32_t bias_alignment = 0;  // 0: there is none
    int64_t bucket = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct Chosen;

  Chosen& chosen_for(const Key& key, const GemmOp& op);
  bool choose(const Key& key, const GemmOp& op, Chosen& chosen) const;
  bool make(const Key& key, const GemmOp& op, Chosen& chosen) const;
  bool serves(Chosen& chosen, int64_t rows) const;

  const std::unique_ptr<CublasLt> library_;
  std::map<Key, std::unique_ptr<Chosen>> chosen_;
};

}  // namespace tandem::device::cuda
