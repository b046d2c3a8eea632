#include "device/emulated/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/element_type.h"
#include "support/sizes.h"

namespace tandem::device {
namespace {

std::shared_ptr<Arena> arena_of(int64_t bytes) {
  auto arena = Arena::create({.tier = "device", .flag = "--device-memory"}, bytes);
  CHECK(arena.ok(), "{}", arena.error().message);
  return std::move(arena).value();
}

std::unique_ptr<Memory> take(Arena& arena, int64_t bytes) {
  auto memory = arena.allocate(bytes);
  CHECK(memory.ok(), "{}", memory.error().message);
  return std::move(memory).value();
}

TEST(Arena, PiecesAreAlignedZeroedApartAndInside) {
  const auto arena = arena_of(64 * kMiB);
  std::vector<std::unique_ptr<Memory>> pieces;
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, 5 * kMiB, 3 * kMiB + 1}) {
    pieces.push_back(take(*arena, bytes));
    std::byte* data = pieces.back()->data();
    EXPECT_EQ(pieces.back()->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(2 * kMiB), 0U);
    EXPECT_TRUE(arena->contains(data, bytes));
    for (int64_t i = 0; i < bytes; ++i) {
      ASSERT_EQ(data[i], std::byte{0});
    }
    std::memset(data, static_cast<int>(pieces.size()), static_cast<size_t>(bytes));
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    for (int64_t at = 0; at < pieces[i]->bytes(); ++at) {
      ASSERT_EQ(pieces[i]->data()[at], static_cast<std::byte>(i + 1));
    }
  }
}

TEST(Arena, WhatIsGivenBackReadsAsNaNAndComesBackAsZeros) {
  const auto arena = arena_of(8 * kMiB);
  const int64_t bytes = 3 * kMiB + 12;
  auto memory = take(*arena, bytes);
  std::byte* data = memory->data();
  std::memset(data, 1, static_cast<size_t>(bytes));
  memory.reset();
  for (int64_t i = 0; i + 4 <= bytes; i += 4) {
    float value = 0.0F;
    std::memcpy(&value, data + i, sizeof(value));
    ASSERT_TRUE(std::isnan(value)) << i;
    BFloat16 half = 0;
    std::memcpy(&half, data + i + 2, sizeof(half));
    ASSERT_TRUE(std::isnan(bf16_to_f32(half))) << i;
  }
  memory = take(*arena, bytes);
  EXPECT_EQ(memory->data(), data);
  for (int64_t i = 0; i < bytes; ++i) {
    ASSERT_EQ(data[i], std::byte{0});
  }
}

TEST(Arena, TheBoundIsExactAndTheErrorNamesWhatIsAskedAndLeft) {
  const auto arena = arena_of(10 * kMiB);
  const auto first = take(*arena, 4 * kMiB);
  const auto refused = arena->allocate(6 * kMiB + 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  for (const char* part : {"device memory", "6291457 bytes", "6291456 bytes", "--device-memory"}) {
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  }
  EXPECT_TRUE(arena->allocate(6 * kMiB).ok());
  EXPECT_TRUE(arena->allocate(6 * kMiB).ok());  // the one before is given back
}

TEST(Arena, SmallPiecesCountAsWhatTheyAre) {
  const auto arena = arena_of(1000);
  std::vector<std::unique_ptr<Memory>> pieces;
  for (int i = 0; i < 100; ++i) {
    pieces.push_back(take(*arena, 10));
  }
  EXPECT_FALSE(arena->allocate(1).ok());
  EXPECT_TRUE(arena->allocate(0).ok());
}

TEST(Arena, PiecesOfRandomSizesComeAndGoWithoutTouchingEachOther) {
  const auto arena = arena_of(20 * kMiB);
  std::mt19937 random(7);
  std::vector<std::pair<std::unique_ptr<Memory>, int>> pieces;
  for (int turn = 1; turn <= 150; ++turn) {
    if (!pieces.empty() && random() % 2 == 0) {
      const size_t at = random() % pieces.size();
      const auto& [memory, mark] = pieces[at];
      for (int64_t i = 0; i < memory->bytes(); i += 509) {
        ASSERT_EQ(memory->data()[i], static_cast<std::byte>(mark));
      }
      pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(at));
      continue;
    }
    auto memory = arena->allocate(static_cast<int64_t>(random() % (4 * kMiB)));
    if (memory.ok()) {
      const int mark = turn % 250;
      std::memset((*memory)->data(), mark, static_cast<size_t>((*memory)->bytes()));
      pieces.emplace_back(std::move(memory).value(), mark);
    }
  }
  pieces.clear();
  EXPECT_TRUE(arena->allocate(20 * kMiB).ok());
}

TEST(Arena, APieceMayOutliveTheOwnersOfItsArena) {
  auto arena = arena_of(kMiB);
  const auto memory = take(*arena, 100);
  arena.reset();
  std::memset(memory->data(), 3, 100);
}

TEST(Arena, RangesThatLeaveTheReservationAreNotInside) {
  const auto arena = arena_of(4 * kMiB);
  const auto memory = take(*arena, 100);
  int outside = 0;
  EXPECT_FALSE(arena->contains(&outside, 4));
  EXPECT_FALSE(arena->contains(nullptr, 0));
  EXPECT_FALSE(arena->contains(memory->data(), int64_t{1} << 62));
  EXPECT_FALSE(arena->contains(memory->data(), -1));
  EXPECT_FALSE(arena->contains(memory->data() - 1, 1));
}

TEST(Arena, PagesAreThereAtOnceWhereTheyAreAskedFor) {
  const auto resident = [](const Memory& memory) {
    std::vector<unsigned char> pages(static_cast<size_t>(4 * kMiB / sysconf(_SC_PAGESIZE)));
    EXPECT_EQ(mincore(memory.data(), 4 * kMiB, pages.data()), 0);
    return std::ranges::count_if(pages, [](unsigned char page) { return (page & 1U) != 0; });
  };
  const ArenaName name{.tier = "host", .flag = "--host-memory"};
  for (const PagesCome come : {PagesCome::kAtUse, PagesCome::kAtOnce}) {
    const auto arena = Arena::create(name, 8 * kMiB, come);
    ASSERT_TRUE(arena.ok());
    const auto memory = arena.value()->allocate(4 * kMiB);
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(resident(*memory.value()) > 0, come == PagesCome::kAtOnce);
    EXPECT_EQ(memory.value()->data()[0], std::byte{0});
  }
}

TEST(Arena, CapacitiesThatMakeNoSenseAreRefused) {
  for (const int64_t bytes : {int64_t{-5}, int64_t{0}, std::numeric_limits<int64_t>::max()}) {
    const auto arena = Arena::create({.tier = "host", .flag = "--host-memory"}, bytes);
    ASSERT_FALSE(arena.ok());
    EXPECT_EQ(arena.error().param, "--host-memory");
  }
  EXPECT_FALSE(arena_of(kMiB)->allocate(-1).ok());
}

}  // namespace
}  // namespace tandem::device
