// Whether two families compute the same products, by trying.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/choice.h"

namespace tandem::kernels {

namespace {

// 64-byte aligned memory of its own.
template <class T>
class Aligned {
 public:
  explicit Aligned(int64_t count) : room_(static_cast<size_t>(count) * sizeof(T) + 64) {
    const auto address = reinterpret_cast<uintptr_t>(room_.data());
    data_ = reinterpret_cast<T*>(room_.data() + (64 - address % 64) % 64);
  }
  [[nodiscard]] T* data() const { return data_; }

 private:
  std::vector<std::byte> room_;
  T* data_ = nullptr;
};

constexpr int64_t kColumns = 128;
constexpr int64_t kDepth = 1056;  // no whole number of the pieces that kernels work in
constexpr int64_t kMostRows = 29;

// Numbers of all sizes: like weights and activations, some that cancel each other, some so small
// that their products are denormal, and some that are it themselves.
float any_number(std::mt19937& random) {
  const float usual = std::normal_distribution<float>()(random);
  switch (random() % 16) {
    case 0:
      return std::ldexp(usual, static_cast<int>(random() % 40) - 20);
    case 1:
      return std::ldexp(usual, -70 - static_cast<int>(random() % 70));
    case 2:
      return 0;
    default:
      return usual;
  }
}

void fill(BFloat16* to, int64_t count, std::mt19937& random) {
  for (int64_t i = 0; i < count; ++i) {
    to[i] = f32_to_bf16(any_number(random));
  }
}

struct Operands {
  Operands() : x(kMostRows * kDepth), w(kColumns * kDepth), bias(kColumns) {
    std::mt19937 random(20);
    fill(x.data(), kMostRows * kDepth, random);
    fill(w.data(), kColumns * kDepth, random);
    for (int64_t i = 0; i < kColumns; ++i) {
      bias.data()[i] = any_number(random);
    }
    // One row of numbers that are all denormal or nearly so: nothing larger hides a difference.
    for (int64_t k = 0; k < kDepth; ++k) {
      x.data()[k] = f32_to_bf16(std::ldexp(any_number(random), -110));
    }
  }
  Aligned<BFloat16> x;
  Aligned<BFloat16> w;  // as it comes; every family packs it
  Aligned<float> bias;
};

std::vector<std::byte> packed(const Kernels& kernels, const Operands& operands,
                              PackedMatrix& matrix, Aligned<BFloat16>& target) {
  matrix = {.data = target.data(), .type = ElementType::kBF16, .n = kColumns, .k = kDepth};
  kernels.pack({.source = operands.w.data(),
                .source_type = ElementType::kBF16,
                .n = {kColumns, kColumns, kColumns},
                .k = {kDepth, kDepth, kDepth},
                .target = matrix,
                .target_data = target.data()},
               0, kColumns / kPanelColumns);
  std::vector<std::byte> bytes(static_cast<size_t>(matrix.bytes()));
  std::memcpy(bytes.data(), target.data(), bytes.size());
  return bytes;
}

std::vector<std::byte> results_of(const Kernels& kernels, const Operands& operands,
                                  const PackedMatrix& w, int64_t rows, GemmStore store) {
  Aligned<float> y(kMostRows * kColumns);
  for (int64_t i = 0; i < kMostRows * kColumns; ++i) {
    y.data()[i] = static_cast<float>(i % 7) / 7;
  }
  GemmArgs args{.x = operands.x.data(),
                .x_stride = kDepth,
                .rows = rows,
                .w = w,
                .bias = store == GemmStore::kSiluMul ? nullptr : operands.bias.data(),
                .y = y.data(),
                .y_stride = kColumns,
                .store = store};
  if (store == GemmStore::kSiluMul) {
    args.activated = y.data();
  }
  const Aligned<std::byte> scratch(kernels.gemm_scratch_bytes(args));
  kernels.gemm(args, 0, w.panels(), scratch.data());
  std::vector<std::byte> bytes(static_cast<size_t>(kMostRows * kColumns) * sizeof(float));
  std::memcpy(bytes.data(), y.data(), bytes.size());
  return bytes;
}

}  // namespace

bool same_products(const Kernels& one, const Kernels& other) {
  if (one.isa == other.isa) {
    return true;
  }
  const Operands operands;
  PackedMatrix w;
  PackedMatrix other_w;
  Aligned<BFloat16> target(kColumns * kDepth);
  Aligned<BFloat16> other_target(kColumns * kDepth);
  if (packed(one, operands, w, target) != packed(other, operands, other_w, other_target)) {
    return false;
  }
  for (const int64_t rows : {int64_t{1}, int64_t{2}, int64_t{5}, kMostRows}) {
    for (const GemmStore store : {GemmStore::kWrite, GemmStore::kAdd, GemmStore::kSiluMul}) {
      if (results_of(one, operands, w, rows, store) !=
          results_of(other, operands, w, rows, store)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace tandem::kernels
