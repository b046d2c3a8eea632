#include "device/cuda/library_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <string_view>

namespace tandem::device::cuda {
namespace {

using lt::Status;

// The largest power of two, up to the library's own default, that divides an address.
uint32_t alignment_of(const void* address) {
  constexpr uintptr_t kMost = 256;
  const auto bits = reinterpret_cast<uintptr_t>(address) | kMost;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

template <class Attribute, class Value, class Object>
bool set(Status (*setter)(Object, Attribute, const void*, size_t), Object object,
         Attribute attribute, const Value& value) {
  return setter(object, attribute, &value, sizeof(value)) == Status::kSuccess;
}

lt::DataType type_of(ElementType type) {
  return type == ElementType::kF32 ? lt::DataType::kF32 : lt::DataType::kBF16;
}

// Parts of the depth, summed by a kernel behind the product in a fixed order.
constexpr uint32_t kSplitsOfComputeType = 2;

bool may_split_depth() {
  static const bool kSplits = [] {
    const char* text = std::getenv(kDepthVariable);  // NOLINT(concurrency-mt-unsafe)
    return text == nullptr || std::string_view(text) != "whole";
  }();
  return kSplits;
}

}  // namespace

std::optional<ProductKind> product_kind(const GemmOp& op) {
  if (op.x_type != op.w.format.type ||
      (op.y_type != ElementType::kF32 && (op.y_type != op.x_type || op.bias != nullptr))) {
    return std::nullopt;
  }
  return ProductKind{.n = op.w.n,
                     .k = op.w.k,
                     .type = op.x_type,
                     .y_type = op.y_type,
                     .x_stride = op.x_stride,
                     .y_stride = op.y_stride,
                     .x_alignment = alignment_of(op.x),
                     .w_alignment = alignment_of(op.w.data),
                     .y_alignment = alignment_of(op.y),
                     .bias_alignment = op.bias == nullptr ? 0 : alignment_of(op.bias),
                     .bucket = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(op.rows)))};
}

std::string product_name(const ProductKind& kind) {
  return fmt::format("product {}x{} {} to {}, strides {} {}, aligned {} {} {} {}, {} to {} rows",
                     kind.n, kind.k, element_name(kind.type), element_name(kind.y_type),
                     kind.x_stride, kind.y_stride, kind.x_alignment, kind.w_alignment,
                     kind.y_alignment, kind.bias_alignment, kind.min_rows(), kind.bucket);
}

std::string algorithm_name(const lt::Algorithm& algorithm) {
  std::string name;
  for (const uint64_t part : algorithm.data) {
    fmt::format_to(std::back_inserter(name), "{:016x}", part);
  }
  return name;
}

std::unique_ptr<LibraryProduct> LibraryProduct::make(const CublasLt& library,
                                                     const ProductKind& kind, const void* bias) {
  std::unique_ptr<LibraryProduct> made(new LibraryProduct(library, kind));
  return made->describe(bias) ? std::move(made) : nullptr;
}

LibraryProduct::~LibraryProduct() {
  lt_.layout_destroy(w_);
  lt_.layout_destroy(x_);
  lt_.layout_destroy(y_);
  lt_.desc_destroy(desc_);
}

bool LibraryProduct::describe(const void* bias) {
  const auto rows = static_cast<uint64_t>(kind_.bucket);
  const auto n = static_cast<uint64_t>(kind_.n);
  const auto k = static_cast<uint64_t>(kind_.k);
  const int32_t transpose = 1;
  const int32_t bias_type = static_cast<int32_t>(lt::DataType::kF32);
  return lt_.desc_create(&desc_, lt::ComputeType::kF32, lt::DataType::kF32) == Status::kSuccess &&
         set(lt_.desc_set, desc_, lt::DescAttribute::kTransposeA, transpose) &&
         (kind_.bias_alignment == 0 ||
          (set(lt_.desc_set, desc_, lt::DescAttribute::kEpilogue, lt::kBiasEpilogue) &&
           set(lt_.desc_set, desc_, lt::DescAttribute::kBiasType, bias_type) &&
           set(lt_.desc_set, desc_, lt::DescAttribute::kBiasPointer, bias))) &&
         lt_.layout_create(&w_, type_of(kind_.type), k, n, kind_.k) == Status::kSuccess &&
         lt_.layout_create(&x_, type_of(kind_.type), k, rows, kind_.x_stride) == Status::kSuccess &&
         lt_.layout_create(&y_, type_of(kind_.y_type), n, rows, kind_.y_stride) == Status::kSuccess;
}

bool LibraryProduct::set_rows(int64_t rows) {
  const auto columns = static_cast<uint64_t>(rows);
  return set(lt_.layout_set, x_, lt::LayoutAttribute::kColumns, columns) &&
         set(lt_.layout_set, y_, lt::LayoutAttribute::kColumns, columns);
}

std::vector<lt::Algorithm> LibraryProduct::advised(int count) {
  lt::Preference preference = nullptr;
  if (!set_rows(kind_.bucket) || lt_.preference_create(&preference) != Status::kSuccess) {
    return {};
  }
  using Wish = lt::PreferenceAttribute;
  const auto workspace = static_cast<uint64_t>(kWorkspaceBytes);
  const uint32_t splits = may_split_depth() ? kSplitsOfComputeType : 0;
  std::vector<lt::Candidate> candidates(static_cast<size_t>(count));
  int found = 0;
  const bool asked = set(lt_.preference_set, preference, Wish::kMaxWorkspaceBytes, workspace) &&
                     set(lt_.preference_set, preference, Wish::kReductionMask, splits) &&
                     set(lt_.preference_set, preference, Wish::kAlignmentA, kind_.w_alignment) &&
                     set(lt_.preference_set, preference, Wish::kAlignmentB, kind_.x_alignment) &&
                     set(lt_.preference_set, preference, Wish::kAlignmentC, kind_.y_alignment) &&
                     set(lt_.preference_set, preference, Wish::kAlignmentD, kind_.y_alignment) &&
                     lt_.heuristic(library_.handle(), desc_, w_, x_, y_, y_, preference, count,
                                   candidates.data(), &found) == Status::kSuccess;
  lt_.preference_destroy(preference);
  std::vector<lt::Algorithm> algorithms;
  for (int i = 0; asked && i < std::min(found, count); ++i) {
    const lt::Candidate& each = candidates[static_cast<size_t>(i)];
    if (each.state == Status::kSuccess) {
      algorithms.push_back(each.algorithm);
    }
  }
  return algorithms;
}

bool LibraryProduct::take(const lt::Algorithm& algorithm) {
  algorithm_ = algorithm;
  checked_.clear();
  return serves(kind_.bucket) && serves(kind_.min_rows());
}

// Leaves the layouts at this number of rows.
bool LibraryProduct::serves(int64_t rows) {
  if (!set_rows(rows)) {
    return false;
  }
  if (checked_.contains(rows)) {
    return true;
  }
  lt::Candidate result = {};
  const bool fits = lt_.check(library_.handle(), desc_, w_, x_, y_, y_, &algorithm_, &result) ==
                        Status::kSuccess &&
                    result.workspace_bytes <= static_cast<size_t>(kWorkspaceBytes);
  if (fits) {
    checked_.insert(rows);
  }
  return fits;
}

std::optional<cudaError_t> LibraryProduct::launch(cudaStream_t stream, const GemmOp& op,
                                                  std::byte* workspace) {
  const void* bias = op.bias;
  if (!serves(op.rows) ||
      (bias != nullptr && !set(lt_.desc_set, desc_, lt::DescAttribute::kBiasPointer, bias))) {
    return std::nullopt;
  }
  const float alpha = 1;
  const float beta = op.accumulate ? 1.0F : 0.0F;
  const Status status =
      lt_.matmul(library_.handle(), desc_, &alpha, op.w.data, w_, op.x, x_, &beta, op.y, y_, op.y,
                 y_, &algorithm_, workspace, static_cast<size_t>(kWorkspaceBytes), stream);
  if (status == Status::kSuccess) {
    return cudaSuccess;
  }
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess &&
      (status == Status::kNotSupported || status == Status::kInvalidValue)) {
    return std::nullopt;
  }
  return error == cudaSuccess ? cudaErrorUnknown : error;
}

}  // namespace tandem::device::cuda
