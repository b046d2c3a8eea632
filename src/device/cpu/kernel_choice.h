// Chooses the kernels of a run by measuring: which family multiplies fastest here depends on the
// maker, the memory and the machine's other guests, and no list of processors knows it. Takes 0.1
// to 0.3 s, before any weight is read; not done where it cannot matter.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/element_type.h"
#include "kernels/choice.h"

namespace tandem::device {

class WorkerPool;

// A model's largest product, and how much there is to read in all.
struct ProductShape {
  int64_t n = 0;  // columns
  int64_t k = 0;  // depth
  int64_t weight_bytes = 0;
  ElementType type = ElementType::kBF16;
  Quantization quantization = Quantization::kNone;
  Activations activations = Activations::kPlain;
};

struct KernelChoice {
  kernels::Choice choice;
  std::string times;  // what it was chosen by, for people; empty: nothing was measured
};

// The seconds of products whose weights come from memory, medians of passes in turn. Empty: there
// is no memory for it, or a family does not run here.
std::vector<kernels::ProductTimes> measure_products(const ProductShape& shape,
                                                    std::span<const kernels::Isa> families,
                                                    WorkerPool& pool);

// The best by the usual order where there is no shape, where its weights fit the caches, and where
// families do not differ (fp32 weights); else by measuring with all of the pool's threads.
KernelChoice choose_kernels(const std::optional<ProductShape>& shape, WorkerPool& pool);

// "beside amx with 1, 4, 16, 64, 512 rows: avx512 1.03 1.02 1.10 2.41 5.9, ..."
std::string describe_times(std::span<const kernels::ProductTimes> times);

}  // namespace tandem::device
