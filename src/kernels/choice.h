// Which kernels a run computes with: one family for everything and, where another one is faster,
// that one for matrix products of so many rows, provided that its products are the same bit for
// bit. So the number of rows in a step decides how long a product takes, never what comes out
// (decisions.md 7). Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/kernels.h"

namespace tandem::kernels {

inline constexpr int64_t kAnyRows = std::numeric_limits<int64_t>::max();

struct Choice {
  struct Products {
    int64_t most_rows = kAnyRows;
    Isa isa = Isa::kRef;
    bool operator==(const Products&) const = default;
  };
  Choice() = default;
  Choice(Isa one) : isa(one) {}  // NOLINT(google-explicit-constructor): a family is a choice
  bool operator==(const Choice&) const = default;

  Isa isa = Isa::kRef;
  std::vector<Products> products = {};  // most_rows ascends; more rows than the last: isa
};

// "avx2:8,avx512bf16": products of up to 8 rows by avx2, all else by avx512bf16. ":*" is any number
// of rows. The name of a run's kernels in profiles and records, and what --isa takes.
std::string choice_text(const Choice& choice);
Result<Choice> parse_choice(std::string_view text);

// The tables of a choice. An empty one is good for being assigned to.
class KernelSet {
 public:
  KernelSet() = default;
  KernelSet(const Kernels& all) : all_(&all) {}  // NOLINT(google-explicit-constructor)
  void add(int64_t most_rows, const Kernels& kernels) {
    products_.push_back({most_rows, &kernels});
  }
  [[nodiscard]] const Kernels& all() const { return *all_; }
  [[nodiscard]] const Kernels& for_rows(int64_t rows) const {
    for (const Products& products : products_) {
      if (rows <= products.most_rows) {
        return *products.kernels;
      }
    }
    return *all_;
  }

 private:
  struct Products {
    int64_t most_rows = 0;
    const Kernels* kernels = nullptr;
  };
  const Kernels* all_ = nullptr;
  std::vector<Products> products_;
};

// An error where this machine cannot run a family, or where products would not be the same.
Result<KernelSet> kernel_set(const Choice& choice);

// Whether the products of two families with bf16 weights agree bit for bit, by trying: sums of up
// to a thousand products of numbers of all sizes, and what is stored of them. Both must run here.
bool same_products(const Kernels& one, const Kernels& other);

// What is measured to choose by, and how much each number of rows counts: decoding alone or with
// few others most.
inline constexpr std::array<int64_t, 5> kMeasuredRows = {1, 4, 16, 64, 512};
inline constexpr std::array<double, 5> kRowWeights = {0.35, 0.2, 0.2, 0.1, 0.15};
// A family must be faster by more than that to stand before the usual one: less is noise.
inline constexpr double kLeastGain = 0.05;

struct ProductTimes {
  Isa isa = Isa::kRef;
  std::array<double, kMeasuredRows.size()> seconds = {};
};

// `times` stand in order of preference, the best last. Families with the same products compete for
// each number of rows; sets of them compete by the weighted mean of the logarithms of what is left.
// Everything else than products is computed by the most preferred family of the set.
Choice choose(std::span<const ProductTimes> times,
              const std::function<bool(Isa, Isa)>& same_products);

}  // namespace tandem::kernels
