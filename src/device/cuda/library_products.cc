#include "device/cuda/library_products.h"

#include <bit>
#include <cstdlib>
#include <set>
#include <string_view>
#include <utility>

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

// A is W, B is X, C and D are Y.
struct LibraryProducts::Chosen {
  explicit Chosen(const lt::Functions& functions) : lt(functions) {}
  ~Chosen() {
    lt.layout_destroy(w);
    lt.layout_destroy(x);
    lt.layout_destroy(y);
    lt.desc_destroy(desc);
  }
  Chosen(const Chosen&) = delete;
  Chosen& operator=(const Chosen&) = delete;

  const lt::Functions& lt;
  bool usable = false;
  lt::Desc desc = nullptr;
  lt::Layout w = nullptr;
  lt::Layout x = nullptr;
  lt::Layout y = nullptr;
  lt::Algorithm algorithm = {};
  std::set<int64_t> checked;  // numbers of rows that the algorithm serves
};

LibraryProducts::LibraryProducts(std::unique_ptr<CublasLt> library)
    : library_(std::move(library)) {}
LibraryProducts::~LibraryProducts() = default;

int64_t LibraryProducts::bucket_of(int64_t rows) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
}

bool LibraryProducts::make(const Key& key, const GemmOp& op, Chosen& chosen) const {
  const lt::Functions& lt = library_->functions();
  const auto rows = static_cast<uint64_t>(key.bucket);
  const auto n = static_cast<uint64_t>(key.n);
  const auto k = static_cast<uint64_t>(key.k);
  const int32_t transpose = 1;
  const int32_t bias_type = static_cast<int32_t>(lt::DataType::kF32);
  const void* bias = op.bias;
  return lt.desc_create(&chosen.desc, lt::ComputeType::kF32, lt::DataType::kF32) ==
             Status::kSuccess &&
         set(lt.desc_set, chosen.desc, lt::DescAttribute::kTransposeA, transpose) &&
         (key.bias_alignment == 0 ||
          (set(lt.desc_set, chosen.desc, lt::DescAttribute::kEpilogue, lt::kBiasEpilogue) &&
           set(lt.desc_set, chosen.desc, lt::DescAttribute::kBiasType, bias_type) &&
           set(lt.desc_set, chosen.desc, lt::DescAttribute::kBiasPointer, bias))) &&
         lt.layout_create(&chosen.w, type_of(key.type), k, n, key.k) == Status::kSuccess &&
         lt.layout_create(&chosen.x, type_of(key.type), k, rows, key.x_stride) ==
             Status::kSuccess &&
         lt.layout_create(&chosen.y, type_of(key.y_type), n, rows, key.y_stride) ==
             Status::kSuccess;
}

bool LibraryProducts::choose(const Key& key, const GemmOp& op, Chosen& chosen) const {
  const lt::Functions& lt = library_->functions();
  lt::Preference preference = nullptr;
  if (!make(key, op, chosen) || lt.preference_create(&preference) != Status::kSuccess) {
    return false;
  }
  using Wish = lt::PreferenceAttribute;
  const auto workspace = static_cast<uint64_t>(kWorkspaceBytes);
  const uint32_t splits = may_split_depth() ? kSplitsOfComputeType : 0;
  lt::Candidate best = {};
  int found = 0;
  const bool asked = set(lt.preference_set, preference, Wish::kMaxWorkspaceBytes, workspace) &&
                     set(lt.preference_set, preference, Wish::kReductionMask, splits) &&
                     set(lt.preference_set, preference, Wish::kAlignmentA, key.w_alignment) &&
                     set(lt.preference_set, preference, Wish::kAlignmentB, key.x_alignment) &&
                     set(lt.preference_set, preference, Wish::kAlignmentC, key.y_alignment) &&
                     set(lt.preference_set, preference, Wish::kAlignmentD, key.y_alignment) &&
                     lt.heuristic(library_->handle(), chosen.desc, chosen.w, chosen.x, chosen.y,
                                  chosen.y, preference, 1, &best, &found) == Status::kSuccess;
  lt.preference_destroy(preference);
  if (!asked || found < 1 || best.state != Status::kSuccess) {
    return false;
  }
  chosen.algorithm = best.algorithm;
  return serves(chosen, key.bucket) && serves(chosen, key.bucket / 2 + 1);
}

// Leaves the layouts at this number of rows.
bool LibraryProducts::serves(Chosen& chosen, int64_t rows) const {
  const lt::Functions& lt = library_->functions();
  const auto columns = static_cast<uint64_t>(rows);
  if (!set(lt.layout_set, chosen.x, lt::LayoutAttribute::kColumns, columns) ||
      !set(lt.layout_set, chosen.y, lt::LayoutAttribute::kColumns, columns)) {
    return false;
  }
  if (chosen.checked.contains(rows)) {
    return true;
  }
  lt::Candidate result = {};
  const bool fits = lt.check(library_->handle(), chosen.desc, chosen.w, chosen.x, chosen.y,
                             chosen.y, &chosen.algorithm, &result) == Status::kSuccess &&
                    result.workspace_bytes <= static_cast<size_t>(kWorkspaceBytes);
  if (fits) {
    chosen.checked.insert(rows);
  }
  return fits;
}

LibraryProducts::Chosen& LibraryProducts::chosen_for(const Key& key, const GemmOp& op) {
  const auto found = chosen_.find(key);
  if (found != chosen_.end()) {
    return *found->second;
  }
  auto chosen = std::make_unique<Chosen>(library_->functions());
  chosen->usable = choose(key, op, *chosen);
  return *chosen_.emplace(key, std::move(chosen)).first->second;
}

std::optional<cudaError_t> LibraryProducts::launch(cudaStream_t stream, const GemmOp& op,
                                                   std::byte* workspace) {
  if (op.rows <= 0) {
    return cudaSuccess;
  }
  // The library stores fp32, or the type of x; a bias of fp32 it adds to sums of fp32 alone.
  if (op.x_type != op.w.format.type ||
      (op.y_type != ElementType::kF32 && (op.y_type != op.x_type || op.bias != nullptr))) {
    return std::nullopt;
  }
  const Key key{.n = op.w.n,
                .k = op.w.k,
                .type = op.x_type,
                .y_type = op.y_type,
                .x_stride = op.x_stride,
                .y_stride = op.y_stride,
                .x_alignment = alignment_of(op.x),
                .w_alignment = alignment_of(op.w.data),
                .y_alignment = alignment_of(op.y),
                .bias_alignment = op.bias == nullptr ? 0 : alignment_of(op.bias),
                .bucket = bucket_of(op.rows)};
  Chosen& chosen = chosen_for(key, op);
  if (!chosen.usable || !serves(chosen, op.rows)) {
    return std::nullopt;
  }
  const lt::Functions& lt = library_->functions();
  const void* bias = op.bias;
  if (op.bias != nullptr && !set(lt.desc_set, chosen.desc, lt::DescAttribute::kBiasPointer, bias)) {
    return std::nullopt;
  }
  const float alpha = 1;
  const float beta = op.accumulate ? 1.0F : 0.0F;
  const Status status =
      lt.matmul(library_->handle(), chosen.desc, &alpha, op.w.data, chosen.w, op.x, chosen.x, &beta,
                op.y, chosen.y, op.y, chosen.y, &chosen.algorithm, workspace,
                static_cast<size_t>(kWorkspaceBytes), stream);
  if (status == Status::kSuccess) {
    return cudaSuccess;
  }
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? cudaErrorUnknown : error;
}

}  // namespace tandem::device::cuda
