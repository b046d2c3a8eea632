#include "device/cuda/reservation.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tandem::device::cuda {
namespace {

constexpr int64_t kUnit = Reservation::kAlignment;

std::byte* address(int64_t units) { return reinterpret_cast<std::byte*>((units + 8) * kUnit); }

TEST(Reservation, PiecesAreAlignedAndApart) {
  Reservation memory(address(0), 4 * kUnit + 5);
  EXPECT_EQ(memory.bytes(), 4 * kUnit);
  EXPECT_EQ(memory.take(1), address(0));
  EXPECT_EQ(memory.take(kUnit + 1), address(1));
  EXPECT_EQ(memory.left(), kUnit);
  EXPECT_EQ(memory.take(kUnit + 1), std::nullopt);
  EXPECT_EQ(memory.take(0), address(3)) << "an empty piece has an address of its own";
  EXPECT_EQ(memory.take(0), std::nullopt);
}

TEST(Reservation, WhatIsGivenBackJoinsItsNeighbours) {
  Reservation memory(address(0), 3 * kUnit);
  ASSERT_EQ(memory.take(kUnit), address(0));
  ASSERT_EQ(memory.take(kUnit), address(1));
  ASSERT_EQ(memory.take(kUnit), address(2));
  memory.give_back(address(0), kUnit);
  memory.give_back(address(2), kUnit);
  EXPECT_EQ(memory.take(2 * kUnit), std::nullopt);
  memory.give_back(address(1), kUnit);
  EXPECT_EQ(memory.take(3 * kUnit), address(0));
}

TEST(Reservation, AtAnyOrderNothingOverlapsAndNothingIsLost) {
  std::mt19937_64 random(7);
  constexpr int64_t kUnits = 40;
  Reservation memory(address(0), kUnits * kUnit);
  std::map<std::byte*, int64_t> held;
  for (int step = 0; step < 5000; ++step) {
    if (random() % 2 == 0) {
      const int64_t units = 1 + static_cast<int64_t>(random() % 6);
      if (const auto piece = memory.take(units * kUnit)) {
        const auto after = held.lower_bound(*piece);
        ASSERT_TRUE(after == held.end() || *piece + units * kUnit <= after->first);
        if (after != held.begin()) {
          ASSERT_LE(std::prev(after)->first + std::prev(after)->second * kUnit, *piece);
        }
        held.emplace(*piece, units);
      }
    } else if (!held.empty()) {
      const auto chosen = std::next(held.begin(), static_cast<int64_t>(random() % held.size()));
      memory.give_back(chosen->first, chosen->second * kUnit);
      held.erase(chosen);
    }
    int64_t units = 0;
    for (const auto& [begin, length] : held) {
      units += length;
    }
    ASSERT_EQ(memory.left(), (kUnits - units) * kUnit);
  }
}

}  // namespace
}  // namespace tandem::device::cuda
