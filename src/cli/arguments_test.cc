#include "cli/arguments.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tandem::cli {
namespace {

class Arguments : public ::testing::Test {
 protected:
  Arguments() {
    serve_.add_option("--port", port_, "Port");
    serve_.add_option("--host", host_, "Host");
    serve_.add_option("--api-key", keys_, "Keys");
    serve_.add_option("--old", "Not shown").group("");
  }

  CommandLine line_{"Test", "test"};
  Command serve_ = line_.root().add_subcommand("serve", "Serve");
  int32_t port_ = 0;
  std::string host_;
  std::vector<std::string> keys_;
};

TEST_F(Arguments, AnUnknownFlagNamesTheNearest) {
  EXPECT_EQ(unknown_flag({"--port", "1", "--hots=a"}, serve_),
            "unknown flag --hots, did you mean --host?");
  EXPECT_EQ(unknown_flag({"--port=1", "--old", "x"}, serve_), "");
  EXPECT_EQ(unknown_flag({"--", "--hots"}, serve_), "");
  EXPECT_EQ(nearest_flag("--completely-else", serve_), "");
  EXPECT_EQ(nearest_flag("--host", serve_), "") << "the flag itself";
  EXPECT_EQ(nearest_key("hots", serve_), ", did you mean host?") << "keys have no dashes";
  EXPECT_EQ(nearest_key("api_kye", serve_), ", did you mean api-key?");
}

TEST_F(Arguments, AnUnknownSubcommandNamesTheNearest) {
  EXPECT_EQ(unknown_subcommand({"serv"}, line_.root()),
            "unknown subcommand 'serv', did you mean serve? (known: serve)");
  EXPECT_EQ(unknown_subcommand({"serve", "model"}, line_.root()), "");
}

TEST_F(Arguments, AConfigFileStandsBeforeTheFlags) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / "tandem_arguments_test.yaml";
  std::ofstream(path) << "port: 8\napi_key: [a, b]\n";
  const auto flags = expand_config({"--host", "x", "--config", path.string(), "--port=9"}, serve_);
  ASSERT_TRUE(flags.ok()) << flags.error().message;
  EXPECT_EQ(*flags, (std::vector<std::string>{"--port=8", "--api-key=a", "--api-key=b", "--host",
                                              "x", "--port=9"}));
  std::ofstream(path) << "prot: 8\n";
  const auto wrong = expand_config({"--config=" + path.string()}, serve_);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("unknown key 'prot'"), std::string::npos);
  EXPECT_NE(wrong.error().message.find("did you mean port?"), std::string::npos);
  std::filesystem::remove(path);
}

TEST_F(Arguments, TheModelIsGivenOnceByNameOrByPlace) {
  std::string model;
  serve_.add_option("--model,model", model, "");
  serve_.add_option("--config", "");
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / "tandem_arguments_model_test.yaml";
  std::ofstream(path) << "model: X\nport: 8\n";
  const auto expand = [&](std::vector<std::string> arguments) {
    const auto flags = expand_config(arguments, serve_);
    return flags.ok() ? *flags : std::vector<std::string>{flags.error().message};
  };
  using Texts = std::vector<std::string>;
  const std::string config = "--config=" + path.string();
  EXPECT_EQ(expand({config}), (Texts{"--model=X", "--port=8"}));
  EXPECT_EQ(expand({config, "M"}), (Texts{"--port=8", "M"}));
  EXPECT_EQ(expand({config, "--", "M"}), (Texts{"--port=8", "--", "M"}));
  EXPECT_EQ(expand({"--model", "M", config}), (Texts{"--port=8", "--model", "M"}));
  EXPECT_EQ(expand({"M", "--model", "M", "--model=M"}), Texts{"M"});
  EXPECT_EQ(expand({config, ""}), Texts{"the model is empty; name one, or leave it out"});
  EXPECT_EQ(expand({config, "--model", ""}), expand({config, ""}));
  const std::string differ = "by name or by place; leave one of them out";
  EXPECT_EQ(expand({"--model", "X", "M"}), Texts{"--model is given as 'X' and as 'M', " + differ});
  EXPECT_EQ(expand({"M", "--model=X"}), Texts{"--model is given as 'M' and as 'X', " + differ});
  EXPECT_EQ(expand({"--model=X", "--hots", "M"}), (Texts{"--model=X", "--hots", "M"}))
      << "the unknown flag is named later";
  EXPECT_EQ(expand({"--model=X", "--host", "M"}), (Texts{"--model=X", "--host", "M"}));
  std::ofstream(path) << "config: other.yaml\n";
  EXPECT_NE(expand({config}).front().find("(line 1) cannot name another file"), std::string::npos);
  std::filesystem::remove(path);
}

TEST_F(Arguments, OneOptionMayHaveAVariable) {
  ::setenv("TANDEM_PORT", "7", 1);  // NOLINT(concurrency-mt-unsafe): one thread
  ::setenv("TANDEM_HOST", "a", 1);  // NOLINT(concurrency-mt-unsafe)
  name_environment(serve_, "--port");
  name_environment(serve_, "--isa");  // it has none
  EXPECT_TRUE(line_.parse({"serve"}).ok());
  EXPECT_EQ(port_, 7);
  EXPECT_EQ(host_, "");
  ::unsetenv("TANDEM_PORT");  // NOLINT(concurrency-mt-unsafe)
  ::unsetenv("TANDEM_HOST");  // NOLINT(concurrency-mt-unsafe)
}

TEST_F(Arguments, AVariableMayAddToFlags) {
  EXPECT_TRUE(flags_of_variable(serve_, "--api-key").empty());
  ::setenv("TANDEM_API_KEY", "k=1", 1);  // NOLINT(concurrency-mt-unsafe): one thread
  std::vector<std::string> arguments = flags_of_variable(serve_, "--api-key");
  EXPECT_EQ(arguments, std::vector<std::string>{"--api-key=k=1"});
  EXPECT_TRUE(flags_of_variable(serve_, "--isa").empty());
  name_environment(serve_);
  arguments.insert(arguments.begin(), "serve");
  arguments.insert(arguments.end(), {"--api-key", "k2"});
  EXPECT_TRUE(line_.parse(arguments).ok());
  EXPECT_EQ(keys_, (std::vector<std::string>{"k=1", "k2"}));
  ::unsetenv("TANDEM_API_KEY");  // NOLINT(concurrency-mt-unsafe)
}

TEST_F(Arguments, VariablesThatNoOptionReads) {
  const char* environment[] = {"HOME=/",
                               "TANDEM_PORT=8",
                               "TANDEM_PROT=8",
                               "TANDEM_CUDA_GRAPHS=layers",
                               "TANDEM_CUDA_PREFILL=auto",
                               "TANDEM_SERVICE_HOST=10.0.0.1",
                               "TANDEM_PORT_8000_TCP=tcp://10.0.0.1:8000",
                               nullptr};
  const std::vector<std::string> lines = unread_variables(serve_, environment);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_NE(lines[0].find("TANDEM_PROT is not known"), std::string::npos);
  EXPECT_NE(lines[0].find("did you mean TANDEM_PORT?"), std::string::npos);
  EXPECT_NE(lines[1].find("TANDEM_PORT_8000_TCP, TANDEM_SERVICE_HOST are ignored"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::cli
