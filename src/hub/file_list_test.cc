#include "hub/file_list.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::hub {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kListedCommit(40, 'a');
const std::string kBlob(40, 'b');
const std::string kLarge(64, 'c');

std::string list_text(const std::string& siblings) {
  return fmt::format(R"({{"id": "org/model", "sha": "{}", "siblings": [{}]}})", kListedCommit,
                     siblings);
}

FileList list_of(const std::vector<std::string>& paths) {
  FileList list{.commit = kListedCommit, .files = {}};
  for (const std::string& path : paths) {
    list.files.push_back({.path = path, .size = 10, .checksum = kBlob});
  }
  return list;
}

std::vector<std::string> paths_of(const Result<std::vector<RemoteFile>>& files) {
  if (!files.ok()) {
    return {"error: " + files.error().message};
  }
  std::vector<std::string> paths;
  for (const RemoteFile& file : *files) {
    paths.push_back(file.path);
  }
  return paths;
}

// The small files before the weights.
std::vector<std::string> paths_of(const Result<NeededFiles>& files) {
  if (!files.ok()) {
    return {"error: " + files.error().message};
  }
  std::vector<RemoteFile> all = files->small;
  all.insert(all.end(), files->weights.begin(), files->weights.end());
  return paths_of(Result<std::vector<RemoteFile>>(std::move(all)));
}

TEST(FileList, HasSizesAndChecksums) {
  const auto list = parse_file_list(list_text(fmt::format(
      R"({{"rfilename": "config.json", "size": 12, "blobId": "{}"}},
         {{"rfilename": "model.safetensors", "size": 99, "blobId": "{}",
           "lfs": {{"sha256": "{}", "size": 1000, "pointerSize": 133}}}},
         {{"rfilename": "README.md"}})",
      kBlob, kBlob, kLarge)));
  ASSERT_TRUE(list.ok()) << list.error().message;
  EXPECT_EQ(list->commit, kListedCommit);
  EXPECT_THAT(list->files, ElementsAre(RemoteFile{"config.json", 12, kBlob},
                                       RemoteFile{"model.safetensors", 1000, kLarge},
                                       RemoteFile{"README.md", std::nullopt, ""}));
}

TEST(FileList, WhatIsNoListOrNamesStrangeFilesIsRefused) {
  const auto file = [](const std::string& name) {
    return list_text(fmt::format(R"({{"rfilename": "{}"}})", name));
  };
  for (const std::string& text : {std::string(),
                                  std::string("[]"),
                                  std::string("<html>"),
                                  std::string("{}"),
                                  std::string(R"({"sha": "main", "siblings": []})"),
                                  fmt::format(R"({{"sha": "{}"}})", kListedCommit),
                                  list_text("7"),
                                  list_text("{}"),
                                  file("../../etc/passwd"),
                                  file("/etc/passwd"),
                                  file("a/../../b"),
                                  file("a\\u0000b"),
                                  file("a\\nb"),
                                  file("a\\\\b"),
                                  file(""),
                                  file("."),
                                  list_text(R"({"rfilename": "a", "size": -1})"),
                                  list_text(R"({"rfilename": "a", "size": 1e30})"),
                                  list_text(R"({"rfilename": "a", "size": "12"})"),
                                  list_text(R"({"rfilename": "a", "blobId": "../../x"})"),
                                  list_text(R"({"rfilename": "a"}, {"rfilename": "a"})"),
                                  std::string(100, '[')}) {
    const auto list = parse_file_list(text);
    ASSERT_FALSE(list.ok()) << text;
    EXPECT_THAT(list.error().message, HasSubstr("the hub's list of files cannot be used"));
  }
}

TEST(NeededFiles, AreThoseThatAServerReads) {
  const auto files = needed_files(
      list_of({"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
               "special_tokens_map.json", "chat_template.jinja", "model.safetensors", "README.md",
               "pytorch_model.bin", "consolidated.safetensors", "original/model.safetensors",
               "tokenizer_old.bin", "onnx/config.json", "model.fp16.safetensors",
               "tokenizer.safetensors"}),
      {.repository = "org/model"});
  EXPECT_THAT(paths_of(files),
              ElementsAre("chat_template.jinja", "config.json", "generation_config.json",
                          "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json",
                          "model.safetensors"));
}

TEST(NeededFiles, ShardsAreThoseThatTheIndexNamesLargestFirst) {
  const ModelName name{.repository = "org/model"};
  FileList list = list_of({"config.json", "model.safetensors.index.json", "a.safetensors",
                           "b.safetensors", "consolidated.safetensors", "f/c.safetensors"});
  list.files[3].size = 1000;
  EXPECT_THAT(paths_of(needed_files(list, name)),
              ElementsAre("config.json", "model.safetensors.index.json"));
  EXPECT_THAT(paths_of(shards_of_index(list, name, {"a.safetensors", "b.safetensors"})),
              ElementsAre("b.safetensors", "a.safetensors"));
  EXPECT_THAT(paths_of(shards_of_index(list, name, {"a.safetensors", "none.safetensors"})),
              ElementsAre(HasSubstr("names 'none.safetensors', which the repository lacks")));
  EXPECT_THAT(paths_of(shards_of_index(list, name, {"f/c.safetensors"})),
              ElementsAre(HasSubstr("'f/c.safetensors'")));
  list.files.push_back({.path = "model.safetensors", .size = 7, .checksum = kLarge});
  EXPECT_THAT(paths_of(shards_of_index(list, name, {"none.safetensors"})),
              ElementsAre("model.safetensors"))
      << "the index is out of date";
}

TEST(NeededFiles, SayWhatAModelLacks) {
  const ModelName name{.repository = "org/model"};
  EXPECT_THAT(paths_of(needed_files(list_of({"config.json", "pytorch_model.bin"}), name)),
              ElementsAre(HasSubstr("PyTorch files are not read")));
  EXPECT_THAT(paths_of(needed_files(list_of({"model.safetensors"}), name)),
              ElementsAre(HasSubstr("has no config.json")));
  EXPECT_THAT(paths_of(needed_files(list_of({"config.json", "tokenizer.safetensors"}), name)),
              ElementsAre(HasSubstr("has no model.safetensors")));
  EXPECT_THAT(paths_of(needed_files(list_of({"b.gguf", "a.gguf"}), name)),
              ElementsAre(HasSubstr("for example org/model:a.gguf")));
}

TEST(NeededFiles, AGgufFileIsNamedAndComesWithItsParts) {
  const FileList list = list_of({"m-Q8_0.gguf", "big-00001-of-00002.gguf",
                                 "big-00002-of-00002.gguf", "half-00001-of-00002.gguf"});
  EXPECT_THAT(paths_of(needed_files(list, {.repository = "org/m", .file = "m-Q8_0.gguf"})),
              ElementsAre("m-Q8_0.gguf"));
  EXPECT_THAT(
      paths_of(needed_files(list, {.repository = "org/m", .file = "big-00001-of-00002.gguf"})),
      ElementsAre("big-00001-of-00002.gguf", "big-00002-of-00002.gguf"));
  EXPECT_THAT(
      paths_of(needed_files(list, {.repository = "org/m", .file = "half-00001-of-00002.gguf"})),
      ElementsAre(HasSubstr("has no file 'half-00002-of-00002.gguf'")));
  EXPECT_THAT(paths_of(needed_files(list, {.repository = "org/m", .file = "none.gguf"})),
              ElementsAre(HasSubstr("it has big-00001-of-00002.gguf, ")));
}

TEST(GgufParts, FollowFromTheNameOfTheFirst) {
  EXPECT_THAT(gguf_parts("a.gguf"), ElementsAre("a.gguf"));
  EXPECT_THAT(
      gguf_parts("f/a-00001-of-00003.gguf"),
      ElementsAre("f/a-00001-of-00003.gguf", "f/a-00002-of-00003.gguf", "f/a-00003-of-00003.gguf"));
  EXPECT_THAT(gguf_parts("a-00001-of-99999.gguf"), ElementsAre("a-00001-of-99999.gguf"));
  EXPECT_THAT(gguf_parts("a-00002-of-00003.gguf"), ElementsAre("a-00002-of-00003.gguf"));
}

}  // namespace
}  // namespace tandem::hub
