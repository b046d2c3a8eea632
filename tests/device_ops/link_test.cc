// How fast copies between the tiers are, one way and both ways at once. Prints; only that every
// byte arrives is held to a bound here.
#include <fmt/format.h>

#include "base/clock.h"
#include "device_under_test.h"

namespace tandem::device {
namespace {

TEST(Link, CopiesBothWaysAtOnceArriveAndTheirRateIsPrinted) {
  constexpr int64_t kBytes = int64_t{32} << 20;
  constexpr int kTimes = 8;
  DeviceUnderTest& under_test = DeviceUnderTest::get();
  under_test.clear();
  Device& device = under_test.device();
  const SteadyClock clock;
  auto down = std::move(device.allocate(MemoryKind::kHostPinned, kBytes)).value();
  auto up = std::move(device.allocate(MemoryKind::kHostPinned, kBytes)).value();
  std::byte* from = under_test.take(kBytes);
  std::byte* to = under_test.take(kBytes);
  std::memset(up->data(), 0x5a, kBytes);
  under_test.run(CopyOp{from, up->data(), kBytes});
  const StreamId to_host = device.create_stream(StreamKind::kDeviceToHost);
  const StreamId to_device = device.create_stream(StreamKind::kHostToDevice);
  const auto rate = [&](bool d2h, bool h2d) {
    const Nanos begin = clock.now();
    for (int i = 0; i < kTimes; ++i) {
      if (d2h) {
        device.launch(to_host, CopyOp{down->data(), from, kBytes});
      }
      if (h2d) {
        device.launch(to_device, CopyOp{to, up->data(), kBytes});
      }
    }
    const EventId first = device.record(to_host);
    device.synchronize(device.record(to_device));
    device.synchronize(first);
    const auto nanos = static_cast<double>((clock.now() - begin).count());
    return static_cast<double>(kTimes * kBytes) / nanos;
  };
  rate(true, true);  // warm
  fmt::print(
      R"({{"link_gb_per_s": {{"to_host": {:.2f}, "to_device": {:.2f}, "each_of_both": {:.2f}}}}})"
      "\n",
      rate(true, false), rate(false, true), rate(true, true));
  for (int64_t i = 0; i < kBytes; i += 4099) {
    ASSERT_EQ(down->data()[i], std::byte{0x5a});
  }
}

}  // namespace
}  // namespace tandem::device
