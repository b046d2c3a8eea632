#include "device/cuda/library_products.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "device/cuda/quickest_algorithm.h"

namespace tandem::device::cuda {

LibraryProduct* LibraryProducts::product_for(const ProductKind& kind, const GemmOp& op) {
  const auto found = products_.find(kind);
  if (found != products_.end()) {
    return found->second.get();
  }
  std::unique_ptr<LibraryProduct> product = LibraryProduct::make(*library_, kind, op.bias);
  if (product != nullptr) {
    const auto kept = choices_.find(product_name(kind));
    const int32_t wanted = kept == choices_.end() ? 0 : kept->second;
    const std::vector<lt::Algorithm> advised = product->advised(wanted == 0 ? 1 : kMaxAlgorithms);
    const auto is_there = [&](int32_t i) {
      return i < static_cast<int32_t>(advised.size()) &&
             product->take(advised[static_cast<size_t>(i)]);
    };
    if (!is_there(wanted)) {
      if (wanted != 0) {
        log::warn("cuda: the library has no algorithm {} of a profile's for the {}", wanted,
                  product_name(kind));
      }
      if (wanted == 0 || !is_there(0)) {
        product.reset();
      }
    }
  }
  return products_.emplace(kind, std::move(product)).first->second.get();
}

std::optional<cudaError_t> LibraryProducts::launch(cudaStream_t stream, const GemmOp& op,
                                                   std::byte* workspace) {
  if (op.rows <= 0) {
    return cudaSuccess;
  }
  const std::optional<ProductKind> kind = product_kind(op);
  LibraryProduct* const product = kind.has_value() ? product_for(*kind, op) : nullptr;
  if (product == nullptr) {
    return std::nullopt;
  }
  if (notes_) {
    note(*kind, op);
  }
  return product->launch(stream, op, workspace);
}

void LibraryProducts::note(const ProductKind& kind, const GemmOp& op) {
  Noted& noted = noted_[kind];
  const auto same_weights = [&](const GemmOp& each) { return each.w.data == op.w.data; };
  if (noted.size() < kMaxNoted && std::ranges::none_of(noted, same_weights)) {
    noted.push_back(op);
  }
}

void LibraryProducts::use(std::span<const TunedChoice> choices) {
  for (const TunedChoice& each : choices) {
    choices_[each.work] = each.choice;
  }
  products_.clear();
}

// Timed runs of one kind of product, which go through its noted ops in turn.
class LibraryProducts::Runs {
 public:
  Runs(LibraryProduct& product, const Noted& noted, cudaStream_t stream, GpuTimer& timer,
       std::byte* workspace)
      : product_(product), noted_(noted), stream_(stream), timer_(timer), workspace_(workspace) {}

  // As TimeAlgorithm says.
  double time(const lt::Algorithm& algorithm, int repeats) {
    if (error_ != cudaSuccess || !product_.take(algorithm)) {
      return kServesNone;
    }
    error_ = timer_.begin();
    for (int i = 0; i < repeats && error_ == cudaSuccess; ++i) {
      const GemmOp& op = noted_[next_++ % noted_.size()];
      const std::optional<cudaError_t> launched = product_.launch(stream_, op, workspace_);
      if (launched != cudaSuccess) {
        error_ = timer_.wait();  // an error of the algorithm alone does not come again
        return kServesNone;
      }
    }
    double us = 0;
    if (error_ == cudaSuccess) {
      error_ = timer_.end(us);
    }
    return error_ == cudaSuccess ? us : kServesNone;
  }
  [[nodiscard]] cudaError_t error() const { return error_; }

 private:
  LibraryProduct& product_;
  const Noted& noted_;
  const cudaStream_t stream_;
  GpuTimer& timer_;
  std::byte* const workspace_;
  size_t next_ = 0;
  cudaError_t error_ = cudaSuccess;
};

cudaError_t LibraryProducts::tune(cudaStream_t stream, GpuTimer& timer, std::byte* workspace,
                                  Nanos limit, std::vector<TunedChoice>& choices) {
  notes_ = false;
  std::map<ProductKind, Noted> noted = std::exchange(noted_, {});
  std::vector<const ProductKind*> kinds;
  for (const auto& [kind, ops] : noted) {
    kinds.push_back(&kind);
  }
  // Few rows first: decoding has most of the steps.
  std::ranges::stable_sort(kinds, {}, &ProductKind::bucket);
  const SteadyClock clock;
  const Nanos end = clock.now() + limit;
  size_t left_out = 0;
  for (const ProductKind* kind : kinds) {
    LibraryProduct& product = *products_.at(*kind);
    const std::vector<lt::Algorithm> advised = product.advised(kMaxAlgorithms);
    if (advised.size() < 2) {
      continue;
    }
    if (clock.now() > end) {
      ++left_out;
      continue;
    }
    Runs runs(product, noted.at(*kind), stream, timer, workspace);
    const QuickestAlgorithm quickest =
        quickest_algorithm(static_cast<int>(advised.size()), [&](int algorithm, int repeats) {
          return runs.time(advised[static_cast<size_t>(algorithm)], repeats);
        });
    if (runs.error() != cudaSuccess) {
      return runs.error();
    }
    product.take(advised[static_cast<size_t>(quickest.algorithm)]);
    if (std::isfinite(quickest.us)) {
      choices.push_back({.work = product_name(*kind),
                         .choice = quickest.algorithm,
                         .us = quickest.us,
                         .usual_us = std::isfinite(quickest.usual_us) ? quickest.usual_us : 0});
    }
  }
  if (left_out > 0) {
    log::warn("cuda: {} of {} kinds of products were not timed: the time for that ({}) is over",
              left_out, kinds.size(), format_duration(limit));
  }
  return cudaSuccess;
}

}  // namespace tandem::device::cuda
