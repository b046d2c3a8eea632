#include "sim/host_band.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::sim {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<loadgen::Headline> kNominal = {
    {"completed", 10}, {"bulk.output_tokens_per_s", 100}, {"tpot_p99_ms", std::nullopt}};
const HostBand kBand{.share = 0.2,
                     .low = {{"completed", 9}, {"bulk.output_tokens_per_s", 80}},
                     .high = {{"completed", 10}, {"bulk.output_tokens_per_s", 120}}};

TEST(HostBand, HasALineForEachBandwidth) {
  EXPECT_EQ(band_csv(kBand, kNominal),
            "host_bandwidth_factor,completed,bulk.output_tokens_per_s,tpot_p99_ms\n"
            "0.8,9,80,\n1,10,100,\n1.2,10,120,\n");
}

TEST(HostBand, ShowsWhatTheBandwidthMoves) {
  const std::string text = band_text(kBand, kNominal);
  EXPECT_THAT(text, HasSubstr("-20 %"));
  EXPECT_THAT(text, HasSubstr("bulk: Output tokens/s"));
  EXPECT_THAT(text, Not(HasSubstr("Completed")));
  EXPECT_THAT(band_card(kBand, kNominal),
              HasSubstr("<td>80</td><td>100</td><td>120</td></tr></table>"));
}

TEST(HostBand, IsReadAsItIsWritten) {
  const HostBand read = read_band(band_json(kBand));
  EXPECT_EQ(read.share, 0.2);
  EXPECT_EQ(band_csv(read, kNominal), band_csv(kBand, kNominal));
  EXPECT_EQ(read_band(nlohmann::ordered_json()).share, 0);
  EXPECT_EQ(read_band({{"share", "x"}, {"low", 1}, {"high", 2}}).share, 0);
}

}  // namespace
}  // namespace tandem::sim
