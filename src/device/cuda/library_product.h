// One kind of product as cuBLASLt has it: its descriptors and an algorithm that serves all numbers
// of rows in a range. Weights are row-major [n, k], as for the plain kernels. Column-major the same
// memory is k x n, so Y^T = (W^T)^T X^T needs no second copy of the weights.
//
// Threads: one at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device/cuda/cublaslt_library.h"
#include "device/ops.h"

namespace tandem::device::cuda {

// "whole": no product divides its depth. By default a product does if the library advises it,
// in parts that are summed in a fixed order.
inline constexpr const char* kDepthVariable = "TANDEM_CUDA_DEPTH";

// The properties of a product on which the choice of an algorithm depends.
struct ProductKind {
  int64_t n = 0;
  int64_t k = 0;
  ElementType type = ElementType::kBF16;  // element type of x and w
  ElementType y_type = ElementType::kF32;
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  uint32_t x_alignment = 0;
  uint32_t w_alignment = 0;
  uint32_t y_alignment = 0;
  uint32_t bias_alignment = 0;  // 0: there is none
  int64_t bucket = 0;           // the largest number of rows in the range
  auto operator<=>(const ProductKind&) const = default;

  [[nodiscard]] int64_t min_rows() const { return bucket / 2 + 1; }
};

// nullopt: the library has no such product. It stores fp32, or the type of x; a bias of fp32 it
// adds to sums of fp32 alone.
std::optional<ProductKind> product_kind(const GemmOp& op);
// "product 4096x14336 bfloat16 to float32, strides ..., 33 to 64 rows".
std::string product_name(const ProductKind& kind);

// An algorithm's bytes, in hexadecimal digits: a name for a profile. Nothing is made of a name:
// it is compared with the names of algorithms that the library advises.
std::string algorithm_name(const lt::Algorithm& algorithm);

class LibraryProduct {
 public:
  // Device memory that a product may use while it runs, aligned to 256 bytes.
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

  // `bias`: the address of some product's bias if the kind has one. The result is null if the
  // library refuses such descriptors.
  static std::unique_ptr<LibraryProduct> make(const CublasLt& library, const ProductKind& kind,
                                              const void* bias);
  ~LibraryProduct();
  LibraryProduct(const LibraryProduct&) = delete;
  LibraryProduct& operator=(const LibraryProduct&) = delete;

  // The algorithms that the library advises, the best by its own estimate first.
  [[nodiscard]] std::vector<lt::Algorithm> advised(int count);
  // Uses an algorithm from now on. False: it does not serve the whole range.
  bool take(const lt::Algorithm& algorithm);
  // nullopt: the library refuses the op although it has checked the algorithm. Nothing was
  // launched.
  std::optional<cudaError_t> launch(cudaStream_t stream, const GemmOp& op, std::byte* workspace);

 private:
  LibraryProduct(const CublasLt& library, const ProductKind& kind)
      : library_(library), lt_(library.functions()), kind_(kind) {}
  bool describe(const void* bias);
  bool set_rows(int64_t rows);
  bool serves(int64_t rows);

  const CublasLt& library_;
  const lt::Functions& lt_;
  const ProductKind kind_;
  // A is W, B is X, C and D are Y.
  lt::Desc desc_ = nullptr;
  lt::Layout w_ = nullptr;
  lt::Layout x_ = nullptr;
  lt::Layout y_ = nullptr;
  lt::Algorithm algorithm_ = {};
  std::set<int64_t> checked_;  // numbers of rows that the algorithm serves
};

}  // namespace tandem::device::cuda
