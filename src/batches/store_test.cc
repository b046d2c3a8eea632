#include "batches/store.h"

#include <gtest/gtest.h>

#include "batches/test_support.h"

namespace tandem::batches {
namespace {

namespace fs = std::filesystem;

FileObject some_file(const std::string& id, const std::string& owner = "me") {
  return {.id = id,
          .owner = owner,
          .filename = "a\"b.jsonl",
          .purpose = "batch",
          .bytes = 7,
          .created_at = 100,
          .expires_at = {}};
}

BatchObject some_batch(const std::string& id, const std::string& owner = "me") {
  BatchObject batch;
  batch.id = id;
  batch.owner = owner;
  batch.endpoint = "/v1/completions";
  batch.input_file_id = "file-1";
  batch.completion_window = "24h";
  batch.metadata = {{"k", "v"}};
  batch.input_bytes = 7;
  batch.created_at = 100;
  batch.expires_at = 200;
  return batch;
}

TEST(DataFolder, ACheckFindsAPathThatCannotBeUsedAndMakesNothing) {
  const TestFolder root;
  const fs::path data = root.path() / "data";
  for (const fs::path& path : {data, data / ""}) {
    EXPECT_TRUE(DataFolder::check(path).ok()) << path;
    EXPECT_FALSE(fs::exists(path));
  }
  {
    const auto opened = DataFolder::open(data);
    ASSERT_TRUE(opened.ok());
    EXPECT_TRUE(DataFolder::check(data).ok()) << "in use by the server that is to be restarted";
  }
  const fs::path link = root.path() / "link";
  fs::create_symlink("nowhere", link);
  for (const fs::path& path :
       {data / "lock", data / "lock" / "below", data / "absent" / "below", link}) {
    const Status checked = DataFolder::check(path);
    EXPECT_FALSE(checked.ok() || DataFolder::open(path).ok()) << path;
    EXPECT_NE(checked.error().message.find(path.string()), std::string::npos);
  }
}

class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override { open(); }
  void open() {
    store_.reset();
    folder_.reset();
    Result<DataFolder> folder = DataFolder::open(root_.path() / "data");
    ASSERT_TRUE(folder.ok()) << folder.error().message;
    folder_ = std::make_unique<DataFolder>(*std::move(folder));
    Result<std::unique_ptr<Store>> store = Store::open(*folder_);
    ASSERT_TRUE(store.ok()) << store.error().message;
    store_ = *std::move(store);
  }
  std::string refusal() {
    store_.reset();
    const Result<std::unique_ptr<Store>> store = Store::open(*folder_);
    return store.ok() ? "" : store.error().message;
  }
  void write(const fs::path& path, std::string_view text = "text") { std::ofstream(path) << text; }

  TestFolder root_;
  std::unique_ptr<DataFolder> folder_;
  std::unique_ptr<Store> store_;
};

TEST_F(StoreTest, WhatIsWrittenIsThereAfterOpeningAgain) {
  ASSERT_TRUE(store_->add_file(some_file("file-1")).ok());
  BatchObject batch = some_batch("batch_1");
  ASSERT_TRUE(store_->add_batch(batch).ok());
  batch.state = BatchState::kFailed;
  batch.faults = {{"empty_file", "why", "", {}}, {"invalid_url", "that", "url", 3}};
  batch.counts = {.total = 5, .completed = 2, .failed = 1};
  batch.ended_at = 150;
  ASSERT_EQ(*store_->change(batch, BatchState::kValidating), true);
  open();
  const Result<FileObject> file = store_->file("me", "file-1");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->filename, "a\"b.jsonl");
  EXPECT_FALSE(file->expires_at.has_value());
  const Result<BatchObject> again = store_->batch("me", "batch_1");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->state, BatchState::kFailed);
  EXPECT_EQ(again->faults, batch.faults);
  EXPECT_EQ(again->counts, batch.counts);
  EXPECT_EQ(again->metadata, batch.metadata);
  EXPECT_EQ(again->ended_at, 150);
  EXPECT_FALSE(again->in_progress_at.has_value());
  EXPECT_EQ(store_->batches_by_state()[static_cast<size_t>(BatchState::kFailed)], 1);
}

TEST_F(StoreTest, AStateIsChangedOnlyFromTheOneThatWasSeen) {
  BatchObject batch = some_batch("batch_1");
  ASSERT_TRUE(store_->add_batch(batch).ok());
  batch.state = BatchState::kCancelling;
  EXPECT_EQ(*store_->change(batch, BatchState::kInProgress), false);
  EXPECT_EQ(*store_->change(batch, BatchState::kValidating), true);
  batch.state = BatchState::kCompleted;
  EXPECT_EQ(*store_->finish(batch, BatchState::kInProgress, {some_file("file-out")}), false);
  EXPECT_FALSE(store_->file("me", "file-out").ok());  // all or nothing
  EXPECT_EQ(store_->batch("me", "batch_1")->state, BatchState::kCancelling);
}

TEST_F(StoreTest, ObjectsOfOthersDoNotExist) {
  ASSERT_TRUE(store_->add_file(some_file("file-1")).ok());
  ASSERT_TRUE(store_->add_batch(some_batch("batch_1")).ok());
  for (const ErrorCode code :
       {store_->file("you", "file-1").error().code, store_->batch("you", "batch_1").error().code,
        store_->remove_file("you", "file-1").error().code}) {
    EXPECT_EQ(code, ErrorCode::kNotFound);
  }
  EXPECT_TRUE(store_->files("you", {})->objects.empty());
  EXPECT_TRUE(store_->batches("you", {})->objects.empty());
  EXPECT_FALSE(store_->batches("you", {.after = "batch_1"}).ok());
  EXPECT_TRUE(store_->file("me", "file-1").ok());
}

TEST_F(StoreTest, PagesFollowEachOtherInTheOrderOfCreation) {
  for (const char* id : {"file-c", "file-a", "file-b"}) {
    ASSERT_TRUE(store_->add_file(some_file(id)).ok());
  }
  const auto first = store_->files("me", {.limit = 2});
  ASSERT_EQ(first->objects.size(), 2U);
  EXPECT_EQ(first->objects[0].id, "file-b");
  EXPECT_EQ(first->objects[1].id, "file-a");
  EXPECT_TRUE(first->has_more);
  const auto second = store_->files("me", {.after = "file-a", .limit = 2});
  ASSERT_EQ(second->objects.size(), 1U);
  EXPECT_EQ(second->objects[0].id, "file-c");
  EXPECT_FALSE(second->has_more);
  EXPECT_EQ(store_->files("me", {.oldest_first = true})->objects[0].id, "file-c");
  EXPECT_TRUE(store_->files("me", {.purpose = "batch_output"})->objects.empty());
}

TEST_F(StoreTest, OpeningRemovesContentsThatNoRowNames) {
  ASSERT_TRUE(store_->add_file(some_file("file-1")).ok());
  BatchObject ended = some_batch("batch_ended");
  ASSERT_TRUE(store_->add_batch(ended).ok());
  ended.state = BatchState::kCompleted;
  ASSERT_TRUE(store_->change(ended, BatchState::kValidating).ok());
  ASSERT_TRUE(store_->add_batch(some_batch("batch_runs")).ok());
  for (const char* name : {"file-1", "file-2", "file-3.part"}) {
    write(folder_->files() / name);
  }
  for (const char* name : {"batch_ended", "batch_runs", "batch_unknown"}) {
    fs::create_directory(folder_->batches() / name);
    write(folder_->batches() / name / "input");
  }
  open();
  EXPECT_TRUE(fs::exists(folder_->content("file-1")));
  EXPECT_TRUE(fs::exists(folder_->input("batch_runs")));
  for (const fs::path& gone :
       {folder_->content("file-2"), folder_->files() / "file-3.part",
        folder_->batches() / "batch_ended", folder_->batches() / "batch_unknown"}) {
    EXPECT_FALSE(fs::exists(gone)) << gone;
  }
}

TEST_F(StoreTest, OldFilesAndEndedBatchesGo) {
  ASSERT_TRUE(store_->add_file(some_file("file-old")).ok());
  FileObject young = some_file("file-young");
  young.created_at = 500;
  ASSERT_TRUE(store_->add_file(young).ok());
  FileObject expired = some_file("file-expired");
  expired.created_at = 500;
  expired.expires_at = 550;
  ASSERT_TRUE(store_->add_file(expired).ok());
  BatchObject ended = some_batch("batch_ended");
  ASSERT_TRUE(store_->add_batch(ended).ok());
  ended.state = BatchState::kCompleted;
  ended.ended_at = 150;
  ASSERT_TRUE(store_->change(ended, BatchState::kValidating).ok());
  ASSERT_TRUE(store_->add_batch(some_batch("batch_runs")).ok());
  write(folder_->content("file-old"));
  EXPECT_EQ(*store_->remove_old(400, 600), 2);
  EXPECT_FALSE(fs::exists(folder_->content("file-old")));
  EXPECT_TRUE(store_->file("me", "file-young").ok());
  EXPECT_FALSE(store_->batch("me", "batch_ended").ok());
  EXPECT_TRUE(store_->batch("me", "batch_runs").ok());
}

TEST_F(StoreTest, TheInputOfARunningBatchTakesSpaceWhenItsFileIsGone) {
  ASSERT_TRUE(store_->add_file(some_file("file-1")).ok());
  ASSERT_TRUE(store_->add_batch(some_batch("batch_1")).ok());
  EXPECT_EQ(*store_->stored_bytes(), 7);
  ASSERT_TRUE(store_->remove_file("me", "file-1").ok());
  EXPECT_EQ(*store_->stored_bytes(), 7);
  BatchObject batch = *store_->batch("me", "batch_1");
  batch.state = BatchState::kFailed;
  ASSERT_TRUE(store_->change(batch, BatchState::kValidating).ok());
  EXPECT_EQ(*store_->stored_bytes(), 0);
}

TEST_F(StoreTest, BatchesOfOneFileShareItsBytesAlsoWhenItIsGone) {
  ASSERT_TRUE(store_->add_file(some_file("file-1")).ok());
  for (const char* id : {"batch_1", "batch_2", "batch_3"}) {
    ASSERT_TRUE(store_->add_batch(some_batch(id)).ok());
  }
  ASSERT_TRUE(store_->remove_file("me", "file-1").ok());
  EXPECT_EQ(*store_->stored_bytes(), 7);
}

TEST_F(StoreTest, AFileThatHasExpiredIsNotThereBeforeItIsRemoved) {
  store_.reset();
  int64_t now = 549;
  store_ = *Store::open(*folder_, [&now] { return now; });
  FileObject file = some_file("file-1");
  file.expires_at = 550;
  ASSERT_TRUE(store_->add_file(file).ok());
  EXPECT_TRUE(store_->file("me", "file-1").ok());
  EXPECT_EQ(store_->files("me", {})->objects.size(), 1U);
  now = 550;
  EXPECT_EQ(store_->file("me", "file-1").error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(store_->files("me", {})->objects.empty());
  store_.reset();
}

TEST_F(StoreTest, ListsGoOnBehindAFileThatWasDeletedMeanwhile) {
  for (const char* id : {"file-a", "file-b", "file-c"}) {
    ASSERT_TRUE(store_->add_file(some_file(id)).ok());
  }
  ASSERT_TRUE(store_->remove_file("me", "file-c").ok());
  ASSERT_TRUE(store_->remove_file("me", "file-b").ok());
  open();
  const auto page = store_->files("me", {.after = "file-b"});
  ASSERT_TRUE(page.ok()) << page.error().message;
  ASSERT_EQ(page->objects.size(), 1U);
  EXPECT_EQ(page->objects[0].id, "file-a");
  EXPECT_FALSE(store_->files("you", {.after = "file-b"}).ok());
}

TEST_F(StoreTest, BatchesAreListedInTheOrderThatWasAskedFor) {
  for (const char* id : {"batch_1", "batch_2", "batch_3"}) {
    ASSERT_TRUE(store_->add_batch(some_batch(id)).ok());
  }
  EXPECT_EQ(store_->batches("me", {})->objects[0].id, "batch_3");
  EXPECT_EQ(store_->batches("me", {.oldest_first = true})->objects[0].id, "batch_1");
  EXPECT_EQ(store_->batches("me", {.after = "batch_1", .oldest_first = true})->objects[0].id,
            "batch_2");
}

TEST_F(StoreTest, ADatabaseOfTheFirstVersionIsBroughtUpToDate) {
  ASSERT_TRUE(store_->add_batch(some_batch("batch_1")).ok());
  store_.reset();
  {
    const Result<Database> database = Database::open(folder_->database());
    for (const char* sql : {"ALTER TABLE batches DROP COLUMN models", "DROP TABLE removed",
                            "PRAGMA user_version = 1"}) {
      ASSERT_TRUE(database->run(sql).ok()) << sql;
    }
  }
  open();
  Result<BatchObject> batch = store_->batch("me", "batch_1");
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  EXPECT_TRUE(batch->models.empty());
  batch->models = {"tiny"};
  ASSERT_EQ(*store_->change(*batch, BatchState::kValidating), true);
  open();
  EXPECT_EQ(store_->batch("me", "batch_1")->models, (std::vector<std::string>{"tiny"}));
}

TEST_F(StoreTest, ADatabaseOfAnotherVersionOrProgramIsRefusedByName) {
  {
    const Result<Database> database = Database::open(folder_->database());
    ASSERT_TRUE(database->run("PRAGMA user_version = 3").ok());
  }
  EXPECT_NE(refusal().find("version 3"), std::string::npos);
  EXPECT_NE(refusal().find("tandem.db"), std::string::npos);
  {
    const Result<Database> database = Database::open(folder_->database());
    ASSERT_TRUE(database->run("PRAGMA application_id = 1").ok());
  }
  EXPECT_NE(refusal().find("another program"), std::string::npos);
}

TEST_F(StoreTest, ADamagedDatabaseIsRefusedByName) {
  store_.reset();
  write(folder_->database(), std::string(8192, 'x'));
  EXPECT_NE(refusal().find("damaged"), std::string::npos);
  EXPECT_NE(refusal().find("tandem.db"), std::string::npos);
}

TEST_F(StoreTest, ARowThatWasNotWrittenByTandemIsAnErrorNotACrash) {
  ASSERT_TRUE(store_->add_batch(some_batch("batch_1")).ok());
  ASSERT_TRUE(store_->add_file(some_file("file-1")).ok());
  ASSERT_TRUE(store_->add_batch(some_batch("batch_2")).ok());
  ASSERT_TRUE(store_->add_file(some_file("file-2")).ok());
  {
    const Result<Database> database = Database::open(folder_->database());
    ASSERT_TRUE(database
                    ->run("UPDATE batches SET status = 'odd', metadata = '[[', faults = '{' WHERE "
                          "id = 'batch_1'")
                    .ok());
    ASSERT_TRUE(
        database->run("UPDATE batches SET id = '../x', metadata = '[[' WHERE place = 1").ok());
    ASSERT_TRUE(database->run("UPDATE files SET id = '../../x' WHERE id = 'file-1'").ok());
  }
  EXPECT_EQ(store_->batch("me", "../x").error().code, ErrorCode::kIo);
  // The others are not hidden by it.
  ASSERT_EQ(store_->files("me", {})->objects.size(), 1U);
  EXPECT_EQ(store_->files("me", {})->objects[0].id, "file-2");
  ASSERT_EQ(store_->batches("me", {})->objects.size(), 1U);
  ASSERT_EQ(store_->unfinished()->size(), 1U);
  EXPECT_EQ(store_->unfinished()->front().id, "batch_2");
  EXPECT_TRUE(store_->remove_file("me", "../../x").ok());
}

TEST(DataFolder, IsLockedAndPrivate) {
  const TestFolder root;
  const Result<DataFolder> folder = DataFolder::open(root.path() / "data");
  ASSERT_TRUE(folder.ok());
  EXPECT_EQ(fs::status(root.path() / "data").permissions(), fs::perms::owner_all);
  const Result<DataFolder> second = DataFolder::open(root.path() / "data");
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("another server"), std::string::npos);
  EXPECT_FALSE(DataFolder::open(root.path() / "none" / "data").ok());
}

TEST(NewContent, IsThereWholeOrNotAtAll) {
  const TestFolder root;
  const Result<DataFolder> folder = DataFolder::open(root.path() / "data");
  {
    Result<NewContent> dropped = NewContent::create(*folder, "file-1");
    ASSERT_TRUE(dropped->append("abc").ok());
  }
  EXPECT_TRUE(fs::is_empty(folder->files()));
  Result<NewContent> content = NewContent::create(*folder, "file-1");
  ASSERT_TRUE(content->append("abc").ok());
  EXPECT_FALSE(fs::exists(folder->content("file-1")));
  ASSERT_TRUE(content->publish().ok());
  EXPECT_EQ(text_in(folder->content("file-1")), "abc");
}

TEST(ObjectIds, AreSafeAsNamesOfFiles) {
  EXPECT_TRUE(is_object_id("file-0aZ_"));
  for (const std::string& id : {std::string(), std::string("a/b"), std::string(".."),
                                std::string("a.part"), std::string(101, 'a')}) {
    EXPECT_FALSE(is_object_id(id)) << id;
  }
}

}  // namespace
}  // namespace tandem::batches
