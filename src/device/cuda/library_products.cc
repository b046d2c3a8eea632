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
  if (product != nullptr && !take_algorithm(kind, *product)) {
    product.reset();
  }
  return products_.emplace(kind, std::move(product)).first->second.get();
}

// The chosen algorithm, else the first. False: the library has none for the whole range of rows.
bool LibraryProducts::take_algorithm(const ProductKind& kind, LibraryProduct& product) const {
  const std::vector<lt::Algorithm> advised = product.advised(advised_);
  const auto wanted = choices_.find(product_name(kind));
  if (wanted != choices_.end()) {
    const auto found = std::ranges::find(advised, wanted->second, algorithm_name);
    if (found != advised.end() && product.take(*found)) {
      return true;
    }
    log::warn("cuda: the library does not advise the algorithm of the profile for the {}",
              product_name(kind));
  }
  return !advised.empty() && product.take(advised.front());
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
  const std::optional<cudaError_t> launched = product->launch(stream, op, workspace);
  return launched.has_value() ? launched : launch_refused(stream, *kind, op, workspace);
}

// Another algorithm than was chosen, or none from now on.
std::optional<cudaError_t> LibraryProducts::launch_refused(cudaStream_t stream,
                                                           const ProductKind& kind,
                                                           const GemmOp& op, std::byte* workspace) {
  log::warn("cuda: the library refuses its algorithm for the {}", product_name(kind));
  std::unique_ptr<LibraryProduct>& product = products_.at(kind);
  if (choices_.erase(product_name(kind)) > 0 && take_algorithm(kind, *product)) {
    const std::optional<cudaError_t> launched = product->launch(stream, op, workspace);
    if (launched.has_value()) {
      return launched;
    }
  }
  product.reset();
  return std::nullopt;
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
    choices_[each.work] = each.way;
  }
  products_.clear();
}

// Runs of one kind of product, which go through its noted ops in turn.
class LibraryProducts::Runs {
 public:
  Runs(LibraryProduct& product, const Noted& noted, cudaStream_t stream, GpuTimer& timer,
       std::byte* workspace)
      : product_(product), noted_(noted), stream_(stream), timer_(timer), workspace_(workspace) {}

  // Whether products with `rows` are launched. An error of the algorithm alone does not come
  // again; others end everything.
  bool serves(const lt::Algorithm& algorithm, int64_t rows) {
    GemmOp op = noted_.front();
    op.rows = rows;
    const bool launched = error_ == cudaSuccess && product_.take(algorithm) &&
                          product_.launch(stream_, op, workspace_) == cudaSuccess;
    if (error_ == cudaSuccess) {
      error_ = timer_.wait();
    }
    return launched && error_ == cudaSuccess;
  }
  // As TimeAlgorithm says.
  double time(const lt::Algorithm& algorithm, int repeats) {
    if (error_ != cudaSuccess || !product_.take(algorithm)) {
      return kServesNone;
    }
    error_ = timer_.begin();
    const Nanos began = clock_.now();
    for (int i = 0; i < repeats && error_ == cudaSuccess; ++i) {
      const GemmOp& op = noted_[next_++ % noted_.size()];
      if (product_.launch(stream_, op, workspace_) != cudaSuccess) {
        error_ = timer_.wait();
        return kServesNone;
      }
    }
    const Nanos launched = clock_.now() - began;
    double us = 0;
    if (error_ == cudaSuccess) {
      error_ = timer_.end(us);
    }
    constexpr double kShare = 0.8;
    bound_by_host_ = to_seconds(launched) * 1e6 > kShare * us;
    return error_ == cudaSuccess ? us : kServesNone;
  }
  [[nodiscard]] cudaError_t error() const { return error_; }
  // The last products took as long as their launches: their time says nothing of the algorithm.
  [[nodiscard]] bool bound_by_host() const { return bound_by_host_; }

 private:
  LibraryProduct& product_;
  const Noted& noted_;
  const cudaStream_t stream_;
  GpuTimer& timer_;
  std::byte* const workspace_;
  const SteadyClock clock_;
  size_t next_ = 0;
  bool bound_by_host_ = false;
  cudaError_t error_ = cudaSuccess;
};

// nullopt: there is nothing to choose.
std::optional<TunedChoice> LibraryProducts::tune_kind(const ProductKind& kind, Runs& runs) {
  LibraryProduct& product = *products_.at(kind);
  const std::vector<lt::Algorithm> advised = product.advised(advised_);
  if (advised.size() < 2) {
    return std::nullopt;
  }
  std::vector<bool> serves;
  for (const lt::Algorithm& each : advised) {
    serves.push_back(runs.serves(each, kind.min_rows()));
  }
  bool bound_by_host = false;
  QuickestAlgorithm quickest =
      quickest_algorithm(static_cast<int>(advised.size()), [&](int algorithm, int repeats) {
        const auto i = static_cast<size_t>(algorithm);
        const double us = serves[i] ? runs.time(advised[i], repeats) : kServesNone;
        bound_by_host = algorithm == 0 ? runs.bound_by_host() : bound_by_host;
        return us;
      });
  if (bound_by_host && serves.front()) {
    quickest = {.us = quickest.usual_us, .usual_us = quickest.usual_us};
  }
  const lt::Algorithm& chosen = advised[static_cast<size_t>(quickest.algorithm)];
  product.take(chosen);
  if (!std::isfinite(quickest.us)) {
    return std::nullopt;
  }
  return TunedChoice{.work = product_name(kind),
                     .way = algorithm_name(chosen),
                     .choice = quickest.algorithm,
                     .us = quickest.us,
                     .usual_us = std::isfinite(quickest.usual_us) ? quickest.usual_us : 0};
}

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
    if (clock.now() > end) {
      ++left_out;
      continue;
    }
    LibraryProduct* const product = products_.at(*kind).get();
    if (product == nullptr) {  // refused since it was noted
      continue;
    }
    Runs runs(*product, noted.at(*kind), stream, timer, workspace);
    const std::optional<TunedChoice> choice = tune_kind(*kind, runs);
    if (runs.error() != cudaSuccess) {
      return runs.error();
    }
    if (choice.has_value()) {
      choices.push_back(*choice);
    }
  }
  if (left_out > 0) {
    log::warn("cuda: {} of {} kinds of products were not timed: the time for that ({}) is over",
              left_out, kinds.size(), format_duration(limit));
  }
  return cudaSuccess;
}

}  // namespace tandem::device::cuda
