// `tandem completion bash|zsh` and `tandem manual`: texts about the command line, written from its
// own options.
#include <fmt/format.h>

#include <memory>

#include "cli/completion.h"
#include "cli/manual.h"
#include "cli/outline.h"
#include "commands.h"
#include "version.h"

namespace tandem {
namespace {

// The sections of the manual page that the option table lacks.
std::vector<cli::ManualSection> more_sections() {
  return {{"ENVIRONMENT",
           "Options of tandem serve may also be given as variables: TANDEM_MAX_NUM_SEQS=64 is "
           "--max-num-seqs 64. TANDEM_CONFIG names a --config file. TANDEM_ISA is --isa of every "
           "command that computes with a model. Options win over the file, and the file over "
           "variables. HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE and "
           "HF_HUB_DOWNLOAD_TIMEOUT say where models are downloaded from and kept, as Hugging "
           "Face's own tools read them. tandem chat takes its key from TANDEM_API_KEY."},
          {"FILES",
           "$XDG_CACHE_HOME/tandem/profiles (else ~/.cache/tandem/profiles) keeps measured step "
           "times and the choice of kernels. It can be deleted at any time.\n\n"
           "$HF_HOME/hub (else ~/.cache/huggingface/hub) keeps models that were given by name, in "
           "the form of Hugging Face's tools."},
          {"EXIT STATUS",
           "0: done. 1: failed. 2: what was asked for is wrong, and asking again does not help."},
          {"EXAMPLES",
           "Make a small model of random weights and serve it (its words are noise):\n"
           "  tandem model make --preset tiny /tmp/tiny\n"
           "  tandem serve /tmp/tiny --device-memory 512MiB\n\n"
           "Ask it:\n"
           "  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' "
           "\\\n"
           "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'"}};
}

}  // namespace

RunCommand describe_completion(cli::Command app) {
  auto shell = std::make_shared<std::string>();
  app.add_option("shell", *shell, "Which shell").required().one_of({"bash", "zsh"});
  app.footer(
      "\nExamples:\n"
      "  source <(tandem completion bash)\n"
      "  tandem completion zsh > ~/.zfunc/_tandem   # a folder of $fpath");
  return [shell, tandem = app.parent()] {
    const cli::CommandOutline program = cli::outline(tandem);
    fmt::print("{}",
               *shell == "bash" ? cli::bash_completion(program) : cli::zsh_completion(program));
    return 0;
  };
}

RunCommand describe_manual(cli::Command app) {
  return [tandem = app.parent()] {
    fmt::print("{}", cli::manual_page(cli::outline(tandem), kVersion, more_sections()));
    return 0;
  };
}

}  // namespace tandem
