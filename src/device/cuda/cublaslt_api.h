// The part of cuBLASLt's C interface that the back end uses, under names of its own: the library is
// found at run time, so the build does not need its header. Values, sizes and signatures follow
// cuBLAS 13; tests/cuda_on_host/cublaslt_header_check.cc compares them with NVIDIA's header
// if the toolkit has it.
//
// Matrices are column-major: element (i, j) lies at i + j * ld.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace tandem::device::cuda::lt {

enum class Status : int {
  kSuccess = 0,
  kNotInitialized = 1,
  kInvalidValue = 7,
  kExecutionFailed = 13,
  kNotSupported = 15,
};
enum class DataType : int { kF32 = 0, kBF16 = 14 };  // also of alpha and beta
enum class ComputeType : int { kF32 = 68 };
enum class DescAttribute : int {
  kTransposeA = 3,  // int32: 0 no, 1 yes
  kTransposeB = 4,
  kEpilogue = 7,     // uint32
  kBiasPointer = 8,  // void*
  kBiasType = 26,    // int32
};
enum class LayoutAttribute : int { kColumns = 3 };  // uint64
enum class PreferenceAttribute : int {
  kMaxWorkspaceBytes = 1,  // uint64
  kReductionMask = 3,      // uint32: the ways to split the depth that are allowed; 0: none
  kAlignmentA = 5,         // uint32, bytes
  kAlignmentB = 6,
  kAlignmentC = 7,
  kAlignmentD = 8,
};
inline constexpr uint32_t kPlainEpilogue = 1;
// A number for each row of D is added, whatever the column.
inline constexpr uint32_t kBiasEpilogue = 4;

using Handle = struct Context*;
using Desc = struct MatmulDesc*;
using Layout = struct MatrixLayout*;
using Preference = struct MatmulPreference*;

struct Algorithm {
  uint64_t data[8];
};
struct Candidate {
  Algorithm algorithm;
  size_t workspace_bytes;
  Status state;  // the rest counts with kSuccess alone
  float waves;
  int reserved[4];
};

// D = alpha op(A) op(B) + beta C, and the epilogue. C and D may be the same.
struct Functions {
  Status (*create)(Handle*);
  Status (*destroy)(Handle);
  size_t (*version)();
  Status (*desc_create)(Desc*, ComputeType, DataType scale);
  Status (*desc_destroy)(Desc);
  Status (*desc_set)(Desc, DescAttribute, const void* value, size_t bytes);
  Status (*layout_create)(Layout*, DataType, uint64_t rows, uint64_t columns, int64_t ld);
  Status (*layout_destroy)(Layout);
  Status (*layout_set)(Layout, LayoutAttribute, const void* value, size_t bytes);
  Status (*preference_create)(Preference*);
  Status (*preference_destroy)(Preference);
  Status (*preference_set)(Preference, PreferenceAttribute, const void* value, size_t bytes);
  Status (*heuristic)(Handle, Desc, Layout a, Layout b, Layout c, Layout d, Preference, int wanted,
                      Candidate candidates[], int* found);
  Status (*check)(Handle, Desc, Layout a, Layout b, Layout c, Layout d, const Algorithm*,
                  Candidate* result);
  Status (*matmul)(Handle, Desc, const void* alpha, const void* a, Layout, const void* b, Layout,
                   const void* beta, const void* c, Layout, void* d, Layout, const Algorithm*,
                   void* workspace, size_t workspace_bytes, cudaStream_t);
};

// Under these the library exports them, in the order of Functions.
inline constexpr const char* kFunctionNames[] = {
    "cublasLtCreate",
    "cublasLtDestroy",
    "cublasLtGetVersion",
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescDestroy",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatrixLayoutCreate",
    "cublasLtMatrixLayoutDestroy",
    "cublasLtMatrixLayoutSetAttribute",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceDestroy",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmulAlgoCheck",
    "cublasLtMatmul",
};
static_assert(sizeof(Functions) == sizeof(kFunctionNames), "a name for each function");

}  // namespace tandem::device::cuda::lt
