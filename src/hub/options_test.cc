#include "hub/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "hub/test_folder.h"

namespace tandem::hub {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Result<HubOptions> read(const Variables& variables, HubOptions options = {}) {
  RETURN_IF_ERROR(read_environment(options, [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  }));
  return options;
}

std::string cache_of(const Variables& variables) {
  const auto options = read(variables);
  return options.ok() ? options->cache.string() : "error: " + options.error().message;
}

TEST(HubOptions, TheCacheIsWhereHuggingFacesToolsLook) {
  EXPECT_EQ(cache_of({{"HOME", "/h"}}), "/h/.cache/huggingface/hub");
  EXPECT_EQ(cache_of({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}), "/x/huggingface/hub");
  EXPECT_EQ(cache_of({{"HOME", "/h"}, {"HF_HOME", "~/hf"}}), "/h/hf/hub");
  EXPECT_EQ(cache_of({{"HF_HOME", "/hf"}, {"HF_HUB_CACHE", "/cache"}}), "/cache");
  EXPECT_THAT(cache_of({}), HasSubstr("--hub-cache"));
  const auto given = read({{"HF_HUB_CACHE", "/cache"}}, {.cache = "/mine"});
  ASSERT_TRUE(given.ok());
  EXPECT_EQ(given->cache.string(), "/mine");
}

TEST(HubOptions, TheTokenIsAVariableOrAFile) {
  const TestFolder home;
  home.write("token", "hf_file\n");
  home.write("other", " hf_other ");
  const std::string folder = home.path().string();
  EXPECT_EQ(read({{"HF_HOME", folder}})->token, "hf_file");
  EXPECT_EQ(read({{"HF_HOME", folder}, {"HF_TOKEN_PATH", folder + "/other"}})->token, "hf_other");
  EXPECT_EQ(read({{"HF_HOME", folder}, {"HF_TOKEN", "hf_variable\n"}})->token, "hf_variable");
  EXPECT_EQ(read({{"HF_HOME", folder + "/none"}})->token, "");

  const auto broken = read({{"HOME", "/h"}, {"HF_TOKEN", "hf_a\r\nX-Evil: 1"}});
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.error().message, HasSubstr("HF_TOKEN"));
  EXPECT_EQ(broken.error().message.find("hf_a"), std::string::npos) << "it names the token";
}

TEST(HubOptions, ATokenIsNeverReadFromTheWorkingFolder) {
  const TestFolder folder;
  folder.write("token", "hf_planted");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const auto options = read({}, {.cache = "/mine"});
  std::filesystem::current_path(before);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->token, "");
}

TEST(HubOptions, ATokenFileThatCannotBeReadIsNamed) {
  const TestFolder home;
  home.write("token/x", "");  // a folder where the file should be
  const auto options = read({{"HF_HOME", home.path().string()}});
  ASSERT_FALSE(options.ok());
  EXPECT_THAT(options.error().message, HasSubstr((home.path() / "token").string()));
}

TEST(HubOptions, ATildeNeedsAHome) {
  EXPECT_THAT(cache_of({{"HF_HOME", "~/hf"}}), HasSubstr("HOME is not set"));
  EXPECT_THAT(cache_of({{"HF_HUB_CACHE", "~"}}), HasSubstr("HOME is not set"));
  EXPECT_EQ(cache_of({{"HF_HUB_CACHE", "~"}, {"HOME", "/h"}}), "/h");
}

TEST(HubOptions, TheCacheAloneNeedsNoOtherVariable) {
  HubOptions options;
  EXPECT_TRUE(read_cache_folder(options, [](const char* name) {
                return std::string(std::string_view(name) == "HOME" ? "/h" : "nonsense");
              }).ok());
  EXPECT_EQ(options.cache.string(), "nonsense");
}

TEST(HubOptions, TheEndpointIsAnAddress) {
  EXPECT_EQ(read({{"HOME", "/h"}})->endpoint, "https://huggingface.co");
  EXPECT_EQ(read({{"HOME", "/h"}, {"HF_ENDPOINT", "http://mirror:8080/hub/"}})->endpoint,
            "http://mirror:8080/hub");
  for (const char* wrong : {"mirror", "file:///x", "https://user:secret@mirror"}) {
    EXPECT_FALSE(read({{"HOME", "/h"}, {"HF_ENDPOINT", wrong}}).ok()) << wrong;
  }
}

TEST(HubOptions, OfflineAndTheTimeoutAreRead) {
  EXPECT_FALSE(read({{"HOME", "/h"}})->offline);
  for (const char* yes : {"1", "true", "ON", "Yes"}) {
    EXPECT_TRUE(read({{"HOME", "/h"}, {"HF_HUB_OFFLINE", yes}})->offline) << yes;
  }
  EXPECT_FALSE(read({{"HOME", "/h"}, {"HF_HUB_OFFLINE", "0"}})->offline);
  EXPECT_TRUE(read({{"HOME", "/h"}}, {.offline = true})->offline);
  EXPECT_EQ(read({{"HOME", "/h"}, {"HF_HUB_DOWNLOAD_TIMEOUT", "7"}})->silence,
            std::chrono::seconds(7));
  for (const char* wrong : {"0", "-1", "2.5", "x"}) {
    EXPECT_FALSE(read({{"HOME", "/h"}, {"HF_HUB_DOWNLOAD_TIMEOUT", wrong}}).ok()) << wrong;
  }
}

}  // namespace
}  // namespace tandem::hub
