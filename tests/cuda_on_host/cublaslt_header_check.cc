// Holds src/device/cuda/cublaslt_api.h to NVIDIA's own header, if the toolkit has it. Compiled,
// not run.
#include <cublasLt.h>

#include <cstddef>
#include <type_traits>

#include "device/cuda/cublaslt_api.h"

namespace tandem::device::cuda::lt {
namespace {

template <class Ours, class Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
  return static_cast<int64_t>(ours) == static_cast<int64_t>(theirs);
}
static_assert(same(Status::kSuccess, CUBLAS_STATUS_SUCCESS) &&
              same(Status::kNotInitialized, CUBLAS_STATUS_NOT_INITIALIZED) &&
              same(Status::kInvalidValue, CUBLAS_STATUS_INVALID_VALUE) &&
              same(Status::kExecutionFailed, CUBLAS_STATUS_EXECUTION_FAILED) &&
              same(Status::kNotSupported, CUBLAS_STATUS_NOT_SUPPORTED));
static_assert(same(DataType::kF32, CUDA_R_32F) && same(DataType::kBF16, CUDA_R_16BF) &&
              same(ComputeType::kF32, CUBLAS_COMPUTE_32F));
static_assert(same(DescAttribute::kTransposeA, CUBLASLT_MATMUL_DESC_TRANSA) &&
              same(DescAttribute::kTransposeB, CUBLASLT_MATMUL_DESC_TRANSB) &&
              same(DescAttribute::kEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE) &&
              same(DescAttribute::kBiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER) &&
              same(DescAttribute::kBiasType, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE) &&
              same(1, CUBLAS_OP_T) && same(LayoutAttribute::kColumns, CUBLASLT_MATRIX_LAYOUT_COLS));
static_assert(same(PreferenceAttribute::kMaxWorkspaceBytes,
                   CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) &&
              same(PreferenceAttribute::kReductionMask,
                   CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) &&
              same(PreferenceAttribute::kAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) &&
              same(PreferenceAttribute::kAlignmentB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES) &&
              same(PreferenceAttribute::kAlignmentC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES) &&
              same(PreferenceAttribute::kAlignmentD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES) &&
              same(0, CUBLASLT_REDUCTION_SCHEME_NONE));
static_assert(same(kPlainEpilogue, CUBLASLT_EPILOGUE_DEFAULT) &&
              same(kBiasEpilogue, CUBLASLT_EPILOGUE_BIAS));
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t) &&
              sizeof(Candidate) == sizeof(cublasLtMatmulHeuristicResult_t) &&
              offsetof(Candidate, workspace_bytes) ==
                  offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
              offsetof(Candidate, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

// Enums and pointers are passed alike, whatever they are called; the rest must be the same type.
template <class Ours, class Theirs>
constexpr bool passed_alike = (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) ||
                              (std::is_enum_v<Ours> && std::is_enum_v<Theirs> &&
                               sizeof(Ours) == sizeof(Theirs)) ||
                              std::is_same_v<Ours, Theirs>;
template <class Ours, class... OurArguments, class Theirs, class... TheirArguments>
constexpr bool called_alike(Ours (* /*ours*/)(OurArguments...),
                            Theirs (* /*theirs*/)(TheirArguments...)) {
  if constexpr (sizeof...(OurArguments) != sizeof...(TheirArguments)) {
    return false;
  } else {
    return passed_alike<Ours, Theirs> && (passed_alike<OurArguments, TheirArguments> && ...);
  }
}
constexpr Functions kNone = {};
static_assert(called_alike(kNone.create, &cublasLtCreate));
static_assert(called_alike(kNone.destroy, &cublasLtDestroy));
static_assert(called_alike(kNone.version, &cublasLtGetVersion));
static_assert(called_alike(kNone.desc_create, &cublasLtMatmulDescCreate));
static_assert(called_alike(kNone.desc_destroy, &cublasLtMatmulDescDestroy));
static_assert(called_alike(kNone.desc_set, &cublasLtMatmulDescSetAttribute));
static_assert(called_alike(kNone.layout_create, &cublasLtMatrixLayoutCreate));
static_assert(called_alike(kNone.layout_destroy, &cublasLtMatrixLayoutDestroy));
static_assert(called_alike(kNone.layout_set, &cublasLtMatrixLayoutSetAttribute));
static_assert(called_alike(kNone.preference_create, &cublasLtMatmulPreferenceCreate));
static_assert(called_alike(kNone.preference_destroy, &cublasLtMatmulPreferenceDestroy));
static_assert(called_alike(kNone.preference_set, &cublasLtMatmulPreferenceSetAttribute));
static_assert(called_alike(kNone.heuristic, &cublasLtMatmulAlgoGetHeuristic));
static_assert(called_alike(kNone.check, &cublasLtMatmulAlgoCheck));
static_assert(called_alike(kNone.matmul, &cublasLtMatmul));

}  // namespace
}  // namespace tandem::device::cuda::lt
