#include "device/cuda/reservation.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tandem::device::cuda {
namespace {

constexpr int64_t kUnit = Reservation::kAlignment;

std::byte* address(int64_t units) { return reinterpret_cast<std::byte*>((units + 8) * kUnit); }

TEST(Reservation, PiecesAreAlignedAndApartAndWhatIsAskedForCounts) {
  Reservation memory(address(0), 2 * kUnit + 5);
  EXPECT_EQ(memory.capacity(), 2 * kUnit + 5);
  EXPECT_EQ(memory.take(1), address(0));
  EXPECT_EQ(memory.take(kUnit + 1), address(1));
  EXPECT_EQ(memory.left(), kUnit + 3);
  EXPECT_EQ(memory.take(kUnit + 4), std::nullopt);
  EXPECT_EQ(memory.take(0), address(3)) << "an empty piece has an address of its own";
  EXPECT_EQ(memory.take(kUnit + 3), address(4));
  EXPECT_EQ(memory.left(), 0);
  EXPECT_EQ(memory.take(1), std::nullopt);
}

TEST(Reservation, MemoryOfAnyAlignmentHoldsAsManyPiecesAsItSays) {
  for (const int64_t shift : {int64_t{0}, int64_t{256}, kUnit - 256}) {
    std::byte* begin = address(0) + shift;
    const int64_t capacity = Reservation::kPieces * (kUnit + 1);
    Reservation memory(begin, capacity);
    for (int64_t i = 0; i < Reservation::kPieces; ++i) {
      const auto piece = memory.take(kUnit + 1);
      ASSERT_TRUE(piece.has_value()) << i;
      ASSERT_EQ(reinterpret_cast<uintptr_t>(*piece) % static_cast<uintptr_t>(kUnit), 0U);
      ASSERT_GE(*piece, begin);
      ASSERT_LE(*piece + kUnit + 1, begin + Reservation::room_for(capacity));
    }
    EXPECT_EQ(memory.left(), 0);
  }
}

TEST(Reservation, WhatIsGivenBackJoinsItsNeighbours) {
  Reservation memory(address(0), 3 * kUnit);
  const int64_t all = 3 * kUnit;
  ASSERT_EQ(memory.take(kUnit), address(0));
  ASSERT_EQ(memory.take(kUnit), address(1));
  ASSERT_EQ(memory.take(kUnit), address(2));
  memory.give_back(address(0), kUnit);
  memory.give_back(address(2), kUnit);
  EXPECT_EQ(memory.take(all), std::nullopt);
  memory.give_back(address(1), kUnit);
  EXPECT_EQ(memory.take(all), address(0));
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
