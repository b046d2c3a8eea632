#include "gguf/files.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <fstream>

#include "gguf/test_support.h"

namespace tandem::gguf {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class GgufFiles : public ::testing::Test {
 protected:
  GgufFiles() {
    std::string name = (fs::temp_directory_path() / "tandem-gguf-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~GgufFiles() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  fs::path write(const std::string& name, const FileBuilder& file) const {
    std::ofstream(folder_ / name, std::ios::binary) << file.bytes();
    return folder_ / name;
  }
  [[nodiscard]] const fs::path& folder() const { return folder_; }

 private:
  fs::path folder_;
};

FileBuilder part(int64_t number, int64_t count, const std::string& tensor) {
  FileBuilder file;
  file.integer("split.no", number).integer("split.count", count).integer("split.tensors.count", 2);
  file.floats(tensor, {2}, {1, 2});
  return file;
}

std::string error_of(const fs::path& path) {
  const Result<Files> files = Files::open(path);
  return files.ok() ? "no error" : files.error().message;
}

TEST_F(GgufFiles, OpensOneFile) {
  FileBuilder file;
  file.floats("x", {2}, {1, 2});
  const fs::path path = write("m.gguf", file);
  EXPECT_TRUE(is_gguf(path));
  EXPECT_FALSE(is_gguf(folder()));
  EXPECT_FALSE(is_gguf(folder() / "absent.gguf"));
  const Result<Files> files = Files::open(path);
  ASSERT_TRUE(files.ok()) << files.error().message;
  ASSERT_NE(files->find("x"), nullptr);
  EXPECT_EQ(files->find("x")->part, 0);
  EXPECT_EQ(files->find("y"), nullptr);
}

TEST_F(GgufFiles, OpensTheOtherPartsOfASplitModel) {
  const fs::path first = write("m-00001-of-00002.gguf", part(0, 2, "x"));
  const fs::path second = write("m-00002-of-00002.gguf", part(1, 2, "y"));
  const Result<Files> files = Files::open(first);
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_EQ(files->find("x")->part, 0);
  EXPECT_EQ(files->find("y")->part, 1);
  EXPECT_EQ(files->parts()[1].name, "m-00002-of-00002.gguf");
  EXPECT_THAT(error_of(second), HasSubstr("pass the one that ends in '-00001-of-00002.gguf'"));
}

TEST_F(GgufFiles, NamesWhatASplitModelLacks) {
  const fs::path first = write("m-00001-of-00002.gguf", part(0, 2, "x"));
  EXPECT_THAT(error_of(first), HasSubstr("m-00002-of-00002.gguf: cannot be opened"));
  write("m-00002-of-00002.gguf", part(0, 2, "y"));
  EXPECT_THAT(error_of(first), HasSubstr("this is part 1 of 2, but its name says 2 of 2"));
  write("m-00002-of-00002.gguf", part(1, 2, "x"));
  EXPECT_THAT(error_of(first), HasSubstr("tensor 'x' is in m-00001-of-00002.gguf, too"));
  FileBuilder more = part(1, 2, "y");
  more.floats("z", {1}, {1});
  write("m-00002-of-00002.gguf", more);
  EXPECT_THAT(error_of(first), HasSubstr("is 2, but the parts hold 3 tensors"));
  EXPECT_THAT(error_of(write("renamed.gguf", part(0, 2, "x"))),
              HasSubstr("must end in '-00001-of-00002.gguf'"));
  EXPECT_THAT(error_of(write("m.gguf", part(0, int64_t{1} << 31, "x"))),
              HasSubstr("at most 10000"));
}

}  // namespace
}  // namespace tandem::gguf
