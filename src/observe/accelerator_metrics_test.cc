#include "observe/accelerator_metrics.h"

#include <gmock/gmock.h>

namespace tandem::observe {
namespace {

TEST(AcceleratorMetrics, ShowWhatTheDriverTells) {
  const std::string text = accelerator_metrics_text({.device = "cuda:1",
                                                     .memory_bytes = int64_t{80} << 30,
                                                     .memory_used_bytes = 123456789012,
                                                     .busy_share = 0.5,
                                                     .temperature_celsius = 61,
                                                     .clock_hertz = 1.98e9});
  EXPECT_THAT(text, testing::HasSubstr("# TYPE tandem_accelerator_memory_used_bytes gauge\n"
                                       "tandem_accelerator_memory_used_bytes{device=\"cuda:1\"} "
                                       "123456789012\n"));
  EXPECT_THAT(text, testing::HasSubstr("tandem_accelerator_busy_share{device=\"cuda:1\"} 0.5\n"));
  EXPECT_THAT(text, testing::HasSubstr("clock_hertz{device=\"cuda:1\"} 1980000000\n"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("power")));
}

TEST(AcceleratorMetrics, AreEmptyWhereNothingIsTold) {
  EXPECT_EQ(accelerator_metrics_text({.device = "cuda:0"}), "");
}

}  // namespace
}  // namespace tandem::observe
