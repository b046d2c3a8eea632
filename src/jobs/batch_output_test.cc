// What an output does when the disk fails, and with damage in a file of its own.
#include "jobs/batch_output.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "openai/batch_line.h"

namespace {
std::atomic<bool> sync_fails{false};
}  // namespace

// In place of the C library's: a disk that fails when a test says so.
extern "C" int fdatasync(int descriptor) {
  if (sync_fails) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fdatasync, descriptor));
}

namespace tandem::jobs {
namespace {

namespace fs = std::filesystem;

class BatchOutputTest : public ::testing::Test {
 protected:
  BatchOutputTest() {
    std::string pattern = (fs::temp_directory_path() / "tandem_output_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~BatchOutputTest() override {
    sync_fails = false;
    fs::remove_all(folder_);
  }
  static std::string answer(int64_t number) {
    return openai::answered_batch_line({number, 7}, std::to_string(number), 200, "{}");
  }
  void write(const std::string& text) const { std::ofstream(path()) << text; }
  [[nodiscard]] fs::path path() const { return folder_ / "work"; }
  [[nodiscard]] std::string text() const {
    std::stringstream text;
    text << std::ifstream(path()).rdbuf();
    return text.str();
  }

  fs::path folder_;
};

TEST_F(BatchOutputTest, LinesThatMayNotHaveReachedTheDiskAreNotCountedLater) {
  {
    Result<BatchOutput> output = BatchOutput::open(path());
    ASSERT_TRUE(output->append(answer(1)).ok());
    ASSERT_TRUE(output->sync().ok());
    ASSERT_TRUE(output->append(answer(2)).ok());
    sync_fails = true;
    EXPECT_EQ(output->sync().error().code, ErrorCode::kIo);
    sync_fails = false;
    EXPECT_EQ(text(), answer(1));
    ASSERT_TRUE(output->append(answer(3)).ok());
    ASSERT_TRUE(output->sync().ok());
  }
  EXPECT_EQ(BatchOutput::open(path())->written().hash_by_number.size(), 2U);
  EXPECT_EQ(text(), answer(1) + answer(3));
}

TEST_F(BatchOutputTest, AFileOfTheCallersOwnIsMendedWhateverStandsInIt) {
  const std::string zeros(5000, '\0');
  for (const auto& [before, after] : std::vector<std::pair<std::string, std::string>>{
           {zeros, ""},
           {zeros + "\n" + zeros, ""},
           {"nothing of ours\n", ""},
           {answer(1) + "x" + answer(2) + answer(3), answer(1) + answer(3)},
           {answer(1) + answer(1) + answer(2) + "{\"id\"", answer(1) + answer(2)}}) {
    write(before);
    EXPECT_FALSE(BatchOutput::open(path()).ok());
    EXPECT_EQ(text(), before) << "what may be another program's is left as it is";
    ASSERT_TRUE(BatchOutput::open(path(), {.drops_damage = true, .should_stop = {}}).ok());
    EXPECT_EQ(text(), after);
  }
}

TEST_F(BatchOutputTest, ReadingStopsWhenAsked) {
  write(answer(1));
  EXPECT_EQ(BatchOutput::open(path(), {.drops_damage = true, .should_stop = [] { return true; }})
                .error()
                .code,
            ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace tandem::jobs
