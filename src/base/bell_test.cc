#include "base/bell.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace tandem {
namespace {

TEST(Bell, RingsBetweenTwoWaitsCountAsOne) {
  Bell bell;
  bell.ring();
  bell.ring();
  bell.wait();
  const auto began = std::chrono::steady_clock::now();
  bell.wait_for(std::chrono::milliseconds(2));  // not rung: the whole time
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(2));
  bell.ring();
  bell.wait_for(std::chrono::hours(1));
}

TEST(Bell, AWaitEndsWhenAnotherThreadRings) {
  Bell bell;
  Bell answer;
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) {
      bell.wait();
      answer.ring();
    }
  });
  for (int i = 0; i < 1000; ++i) {
    bell.ring();
    answer.wait();
  }
  other.join();
}

}  // namespace
}  // namespace tandem
