#include "node/record_reader.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tandem {
namespace {

class RecordReaderTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  // The groups of a record of these lines.
  std::vector<Group> read(const std::string& lines, bool* cut = nullptr) {
    std::ofstream(path_) << lines;
    RecordReader reader(path_);
    GroupReader groups(reader);
    std::vector<Group> all;
    while (std::optional<Group> group = groups.next()) {
      all.push_back(*std::move(group));
    }
    EXPECT_TRUE(groups.at_end());
    if (cut != nullptr) {
      *cut = reader.cut();
    }
    return all;
  }
  const std::filesystem::path path_ = std::filesystem::temp_directory_path() /
                                      ("record_reader_" + std::to_string(::getpid()) + ".jsonl");
};

TEST_F(RecordReaderTest, AResultWithoutAPlanKnowsWhatTheNextPlanWasShown) {
  bool cut = true;
  const std::vector<Group> groups = read(
      "{\"plan\":1,\"ready\":0}\n"
      "{\"result\":1}\n{\"tiers\":2}\n"
      "{\"tiers\":2}\n"
      "{\"arrival\":7}\n{\"tiers\":2}\n{\"plan\":2,\"ready\":3}\n"
      "{\"result\":2}\n{\"tiers\":3}\n{\"plan\":3,\"ready\":4}\n"
      "{\"result\":3}\n{\"tiers\":4}\n"
      "{\"end\":\"closed\"}\n",
      &cut);
  EXPECT_FALSE(cut);
  ASSERT_GE(groups.size(), 5U);
  std::vector<nlohmann::json> later;
  for (const Group& group : groups) {
    if (group.has_result()) {
      later.push_back(group.later_ready);
    }
  }
  // The second one has its plan with it; nothing follows the third.
  EXPECT_EQ(later, (std::vector<nlohmann::json>{3, nullptr, nullptr}));
}

TEST_F(RecordReaderTest, ARecordThatWasCutIsReadToWhereItWas) {
  bool cut = false;
  const std::vector<Group> groups =
      read("{\"plan\":1}\n{\"result\":1}\n{\"tiers\":2}\n{\"pl", &cut);
  EXPECT_TRUE(cut);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_TRUE(groups[1].has_result());
  EXPECT_TRUE(groups[1].later_ready.is_null());
}

}  // namespace
}  // namespace tandem
