#include "hub/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "hub/test_folder.h"

namespace tandem::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kCommit(40, 'a');
const std::string kConfig(40, '1');
const std::string kTokenizer(40, '2');
const std::string kWeights(64, '3');

RemoteFile file(const std::string& path, const std::string& checksum, int64_t size) {
  return {.path = path, .size = size, .checksum = checksum};
}

// A whole model, as pull() leaves it.
void fill(const TestFolder& root, const Cache& cache) {
  ASSERT_TRUE(cache.make_folders().ok());
  for (const RemoteFile& each :
       {file("config.json", kConfig, 2), file("tokenizer.json", kTokenizer, 2),
        file("model.safetensors", kWeights, 5)}) {
    root.write(cache.blob(each.checksum), std::string(static_cast<size_t>(*each.size), 'x'));
    ASSERT_TRUE(cache.link(kCommit, each).ok());
  }
  ASSERT_TRUE(cache.write_ref("main", kCommit).ok());
}

TEST(Cache, HasTheLayoutOfHuggingFacesTools) {
  const TestFolder root;
  const Cache cache(root.path(), "org/model");
  fill(root, cache);
  const fs::path folder = root.path() / "models--org--model";
  EXPECT_EQ(fs::read_symlink(folder / "snapshots" / kCommit / "config.json").string(),
            "../../blobs/" + kConfig);
  EXPECT_TRUE(fs::is_regular_file(folder / "snapshots" / kCommit / "model.safetensors"));
  EXPECT_EQ(fs::file_size(folder / "refs" / "main"), kCommit.size());
  EXPECT_EQ(cache.commit_of("main"), kCommit);
  EXPECT_EQ(cache.commit_of(kCommit), kCommit);
  EXPECT_EQ(cache.commit_of("other"), std::nullopt);
  EXPECT_TRUE(cache.has_blob(file("", kWeights, 5)));
  EXPECT_FALSE(cache.has_blob(file("", kWeights, 6)));
  EXPECT_THAT(missing_files(cache.snapshot(kCommit), ""), IsEmpty());
}

TEST(Cache, LinksInFoldersLeadToTheBlobs) {
  const TestFolder root;
  const Cache cache(root.path(), "org/model");
  ASSERT_TRUE(cache.make_folders().ok());
  root.write(cache.blob(kWeights), "12345");
  ASSERT_TRUE(cache.link(kCommit, file("q8/deep/m.gguf", kWeights, 5)).ok());
  EXPECT_EQ(fs::file_size(cache.snapshot(kCommit) / "q8/deep/m.gguf"), 5U);
  EXPECT_THAT(missing_files(cache.snapshot(kCommit), "q8/deep/m.gguf"), IsEmpty());
  EXPECT_THAT(missing_files(cache.snapshot(kCommit), "q8/deep/n.gguf"),
              ElementsAre("q8/deep/n.gguf"));
}

TEST(Cache, ALinkThatLeadsElsewhereIsMended) {
  const TestFolder root;
  const Cache cache(root.path(), "org/model");
  ASSERT_TRUE(cache.make_folders().ok());
  fs::create_directories(cache.snapshot(kCommit));
  fs::create_symlink("../../blobs/gone", cache.snapshot(kCommit) / "config.json");
  root.write(cache.blob("other"), "yy");
  fs::create_symlink("../../blobs/other", cache.snapshot(kCommit) / "tokenizer.json");
  root.write(cache.blob(kConfig), "xx");
  root.write(cache.blob(kTokenizer), "zz");
  ASSERT_TRUE(cache.link(kCommit, file("config.json", kConfig, 2)).ok());
  ASSERT_TRUE(cache.link(kCommit, file("tokenizer.json", kTokenizer, 2)).ok());
  EXPECT_TRUE(fs::equivalent(cache.snapshot(kCommit) / "config.json", cache.blob(kConfig)));
  EXPECT_TRUE(fs::equivalent(cache.snapshot(kCommit) / "tokenizer.json", cache.blob(kTokenizer)))
      << "a file of the same size is not enough";
}

TEST(Cache, AFileInTheSnapshotCountsIfItsContentIsRight) {
  const TestFolder root;
  const Cache cache(root.path(), "org/model");
  const auto never = [] { return false; };
  const RemoteFile hello = file("a", "ce013625030ba8dba906f756967f9e9ca394464a", 6);
  EXPECT_FALSE(cache.has_copy(kCommit, hello, never));
  root.write(cache.snapshot(kCommit) / "a", "hello\n");
  EXPECT_TRUE(cache.has_copy(kCommit, hello, never));
  root.write(cache.snapshot(kCommit) / "a", "hellO\n");
  EXPECT_FALSE(cache.has_copy(kCommit, hello, never));
  root.write(cache.blob(kConfig), "hello\n");
  fs::remove(cache.snapshot(kCommit) / "a");
  fs::create_symlink(cache.blob(kConfig), cache.snapshot(kCommit) / "a");
  EXPECT_FALSE(cache.has_copy(kCommit, hello, never)) << "a link is not a copy";
}

TEST(Cache, ACommitIsMarkedOutsideOfItsSnapshot) {
  const TestFolder root;
  const Cache cache(root.path(), "org/model");
  fill(root, cache);
  EXPECT_FALSE(cache.is_complete(kCommit, ""));
  cache.mark_complete(kCommit, "f/m.gguf");
  EXPECT_TRUE(cache.is_complete(kCommit, "f/m.gguf"));
  EXPECT_FALSE(cache.is_complete(kCommit, ""));
  cache.mark_complete(kCommit, "");
  EXPECT_TRUE(cache.is_complete(kCommit, ""));
  EXPECT_FALSE(cache.is_complete(std::string(40, 'b'), ""));
  EXPECT_THAT(cache.refs().at(kCommit), ElementsAre("main"));
}

TEST(Cache, KnowsWhatAHalfModelLacks) {
  const TestFolder root;
  EXPECT_THAT(missing_files(root.path(), ""),
              ElementsAre("config.json", "tokenizer.json", "model.safetensors"));
  root.write("config.json", "{}");
  root.write("tokenizer.model", "x");
  root.write(
      "model.safetensors.index.json",
      R"({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-1.safetensors"}})");
  root.write("m-2.safetensors", "x");
  EXPECT_THAT(missing_files(root.path(), ""), ElementsAre("m-1.safetensors"));
  fs::create_symlink("nowhere", root.path() / "m-1.safetensors");
  EXPECT_THAT(missing_files(root.path(), ""), ElementsAre("m-1.safetensors"));
  fs::create_symlink("nowhere", root.path() / "generation_config.json");
  EXPECT_THAT(missing_files(root.path(), ""),
              ElementsAre("m-1.safetensors", "generation_config.json"));
}

TEST(Cache, ReadsIndexFilesWithSuspicion) {
  for (const char* text : {"", "[]", "{}", R"({"weight_map": {}})", R"({"weight_map": {"a": 7}})",
                           R"({"weight_map": {"a": "../../x"}})", R"({"weight_map": [["a"]]})"}) {
    EXPECT_FALSE(files_of_index(text).ok()) << text;
  }
  const auto files = files_of_index(R"({"weight_map": {"a": "y", "b": "x", "c": "y"}})");
  ASSERT_TRUE(files.ok());
  EXPECT_THAT(*files, ElementsAre("x", "y"));
}

TEST(Cache, ListsModelsWithWhatTheyLack) {
  const TestFolder root;
  EXPECT_THAT(list_models(root.path() / "none"), IsEmpty());
  const Cache whole(root.path(), "org/whole");
  fill(root, whole);
  ASSERT_TRUE(whole.write_ref("refs/pr/1", kCommit).ok());
  const Cache begun(root.path(), "org/begun");
  ASSERT_TRUE(begun.make_folders().ok());
  root.write(begun.incomplete(kWeights), "1234567");
  root.write(root.path() / "datasets--org--data/blobs/x", "x");
  root.write(root.path() / "models--strange", "x");
  root.write(root.path() / "models--no--..--way/x", "x");

  const std::vector<CachedModel> models = list_models(root.path());
  ASSERT_EQ(models.size(), 2U);
  EXPECT_EQ(models[0].repository, "org/begun");
  EXPECT_EQ(models[0].incomplete_bytes, 7);
  EXPECT_FALSE(models[0].missing.empty());
  EXPECT_EQ(models[1].repository, "org/whole");
  EXPECT_EQ(models[1].commit, kCommit);
  EXPECT_THAT(models[1].revisions, ElementsAre("main", "refs/pr/1"));
  EXPECT_EQ(models[1].bytes, 9);
  EXPECT_THAT(models[1].missing, IsEmpty());
}

TEST(FileLock, MakesOthersWaitAndMayBeStopped) {
  const TestFolder root;
  const fs::path path = root.path() / "x.lock";
  const auto never = [] { return false; };
  int waits = 0;
  const auto count = [&](std::string_view) { ++waits; };
  {
    const auto held = FileLock::take(path, never, count);
    ASSERT_TRUE(held.ok());
    EXPECT_EQ(waits, 0);
    const auto stopped = FileLock::take(
        path, [] { return true; }, count);
    ASSERT_FALSE(stopped.ok());
    EXPECT_THAT(stopped.error().message, HasSubstr("stopped"));
  }
  EXPECT_TRUE(FileLock::take(path, never, count).ok());
  EXPECT_EQ(waits, 0);
}

TEST(FileLock, KnowsFileSystemsWithoutLocks) {
  for (const int cause : {ENOSYS, ENOLCK, EOPNOTSUPP}) {
    EXPECT_TRUE(has_no_locks(cause)) << cause;
  }
  EXPECT_FALSE(has_no_locks(EWOULDBLOCK));
  EXPECT_FALSE(has_no_locks(EIO));
}

TEST(Cache, AGgufRepositoryIsOneWithoutOtherWeights) {
  const TestFolder root;
  const fs::path snapshot = Cache(root.path(), "org/gguf").snapshot(kCommit);
  root.write(snapshot / "config.json", "{}");
  root.write(snapshot / "m-00001-of-00002.gguf", "x");
  root.write(snapshot / "m-00002-of-00002.gguf", "x");
  root.write(snapshot / "n.gguf", "x");
  std::vector<CachedModel> models = list_models(root.path());
  ASSERT_EQ(models.size(), 1U);
  EXPECT_TRUE(models[0].is_gguf);
  EXPECT_THAT(models[0].gguf, ElementsAre("m-00001-of-00002.gguf", "n.gguf"));
  EXPECT_THAT(models[0].missing, IsEmpty());
  root.write(snapshot / "model.safetensors", "x");
  models = list_models(root.path());
  EXPECT_FALSE(models[0].is_gguf);
  EXPECT_THAT(models[0].missing, ElementsAre("tokenizer.json"));
}

TEST(DiskErrors, NameTheCure) {
  EXPECT_EQ(disk_error("write", "/x", ENOSPC).code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(disk_error("write", "/x", EFBIG).message, HasSubstr("ulimit -f"));
  EXPECT_THAT(disk_error("open", "/x", EROFS).message, HasSubstr("--hub-cache"));
}

}  // namespace
}  // namespace tandem::hub
