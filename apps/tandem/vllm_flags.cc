#include "vllm_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace tandem {
namespace {

enum class Takes : uint8_t { kSwitch, kValue };

struct VllmFlag {
  const char* name;
  Takes takes;
  // Values that are accepted and change nothing, separated by '|'; of a switch on, off or both.
  // Empty: the flag is refused.
  const char* accepted;
  const char* text;  // why it changes nothing; of what is refused, what to do instead
};

constexpr std::array kFlags = {
    // One device.
    VllmFlag{
        "tensor-parallel-size", Takes::kValue, "1",
        "a server computes on one device; start one for each memory node (--numa 0, --numa 1)"},
    VllmFlag{
        "pipeline-parallel-size", Takes::kValue, "1",
        "a server computes on one device; start one for each memory node (--numa 0, --numa 1)"},
    VllmFlag{"data-parallel-size", Takes::kValue, "1",
             "a process has one engine; start several behind a balancer"},
    VllmFlag{"distributed-executor-backend", Takes::kValue, "mp|uni", "one process does all work"},
    VllmFlag{"api-server-count", Takes::kValue, "1", "the HTTP server is a part of the process"},
    // The model.
    VllmFlag{"trust-remote-code", Takes::kSwitch, "on|off",
             "code of a model's folder is never run"},
    VllmFlag{"load-format", Takes::kValue, "auto|safetensors",
             "weights are safetensors; random ones are made by tandem model make"},
    VllmFlag{"tokenizer-mode", Takes::kValue, "auto|hf|slow",
             "there is one tokenizer for each kind of file; leave the flag out"},
    VllmFlag{"config-format", Takes::kValue, "auto|hf", "config.json is read; leave the flag out"},
    VllmFlag{"generation-config", Takes::kValue, "auto",
             "the model's generation_config.json is used; remove that file to be without it"},
    VllmFlag{"task", Takes::kValue, "auto|generate", "Tandem generates text and nothing else"},
    VllmFlag{"runner", Takes::kValue, "auto|generate", "Tandem generates text and nothing else"},
    VllmFlag{"download-dir", Takes::kValue, "", "use --hub-cache, or the variable HF_HUB_CACHE"},
    VllmFlag{"revision", Takes::kValue, "",
             "write the revision after the model's name: ORG/NAME@REVISION"},
    VllmFlag{"hf-token", Takes::kValue, "",
             "set the variable HF_TOKEN: other users of the machine see flags"},
    VllmFlag{"hf-overrides", Takes::kValue, "", "edit config.json in the model's folder"},
    VllmFlag{"rope-scaling", Takes::kValue, "",
             "edit rope_scaling of config.json in the model's folder"},
    VllmFlag{"override-generation-config", Takes::kValue, "",
             "edit generation_config.json in the model's folder"},
    // The engine.
    VllmFlag{"enforce-eager", Takes::kSwitch, "on|off", "there are no graphs to capture"},
    VllmFlag{"compilation-config", Takes::kValue, "",
             "nothing is compiled at start; leave the flag out"},
    VllmFlag{"enable-chunked-prefill", Takes::kSwitch, "on",
             "prompts are always cut to the step's token budget (--max-num-batched-tokens)"},
    VllmFlag{"long-prefill-token-threshold", Takes::kValue, "0",
             "use --policy sarathi with --sarathi-token-budget"},
    VllmFlag{"async-scheduling", Takes::kSwitch, "on|off",
             "the engine plans in microseconds, between two steps"},
    VllmFlag{"scheduling-policy", Takes::kValue, "fcfs",
             "for classes and levels use --policy sarathi or omniserve"},
    VllmFlag{"max-num-queued-reqs", Takes::kValue, "",
             "use --max-queue, which counts waiting requests"},
    VllmFlag{"kv-cache-memory-bytes", Takes::kValue, "",
             "use --num-kv-blocks, or --device-memory for weights and KV together"},
    VllmFlag{"swap-space", Takes::kValue, "0",
             "preempted sequences are computed again; leave the flag out"},
    VllmFlag{"cpu-offload-gb", Takes::kValue, "0",
             "weights stay on one device; leave the flag out"},
    VllmFlag{"kv-transfer-config", Takes::kValue, "",
             "KV is not shared between servers; leave the flag out"},
    VllmFlag{"speculative-config", Takes::kValue, "",
             "there is no speculative decoding; leave the flag out"},
    VllmFlag{"enable-lora", Takes::kSwitch, "off",
             "there are no adapters; merge the adapter into the model's weights"},
    VllmFlag{"lora-modules", Takes::kValue, "",
             "there are no adapters; merge the adapter into the model's weights"},
    VllmFlag{"max-logprobs", Takes::kValue, "20", "up to 20 alternatives are given"},
    VllmFlag{"stream-interval", Takes::kValue, "1", "every token is sent when it is there"},
    VllmFlag{"limit-mm-per-prompt", Takes::kValue, "",
             "models are of text alone; leave the flag out"},
    // Chat.
    VllmFlag{"enable-auto-tool-choice", Takes::kSwitch, "off",
             "tools go to the template, and the model's calls come back as text; leave the flag "
             "out"},
    VllmFlag{"tool-call-parser", Takes::kValue, "",
             "tools go to the template, and the model's calls come back as text; leave the flag "
             "out"},
    VllmFlag{"reasoning-parser", Takes::kValue, "",
             "reasoning stays in the answer's content; leave the flag out"},
    VllmFlag{"structured-outputs-config", Takes::kValue, "",
             "there are no structured outputs; leave the flag out"},
    VllmFlag{"guided-decoding-backend", Takes::kValue, "",
             "there are no structured outputs; leave the flag out"},
    VllmFlag{"chat-template-content-format", Takes::kValue, "auto|string",
             "the template gets text; leave the flag out"},
    VllmFlag{"default-chat-template-kwargs", Takes::kValue, "",
             "send chat_template_kwargs with each request"},
    VllmFlag{"response-role", Takes::kValue, "assistant", "answers have the role assistant"},
    // The server.
    VllmFlag{"disable-log-requests", Takes::kSwitch, "on",
             "prompts are never logged; one access line stands for each request"},
    VllmFlag{"enable-log-requests", Takes::kSwitch, "off",
             "prompts are never logged; --record-out writes them to a file"},
    VllmFlag{"disable-log-stats", Takes::kSwitch, "on|off",
             "statistics are not logged; /metrics has them"},
    VllmFlag{"disable-uvicorn-access-log", Takes::kSwitch, "off",
             "use --log-level warning, which leaves out the access lines"},
    VllmFlag{"uvicorn-log-level", Takes::kValue, "", "use --log-level"},
    VllmFlag{"disable-fastapi-docs", Takes::kSwitch, "on|off", "no such pages are served"},
    VllmFlag{"enable-request-id-headers", Takes::kSwitch, "on", "answers always have X-Request-Id"},
    VllmFlag{"enable-prompt-tokens-details", Takes::kSwitch, "on", "usage always has them"},
    VllmFlag{"enable-server-load-tracking", Takes::kSwitch, "on", "/load always counts"},
    VllmFlag{"enable-ssl-refresh", Takes::kSwitch, "off",
             "send SIGHUP when certificates have changed"},
    VllmFlag{"root-path", Takes::kValue, "", "let the proxy cut the path's beginning off"},
    VllmFlag{"uds", Takes::kValue, "", "use --host and --port, for example --host 127.0.0.1"},
    VllmFlag{"middleware", Takes::kValue, "", "put a proxy before the server"},
};

std::vector<std::string_view> accepted_values(const VllmFlag& flag) {
  std::vector<std::string_view> values;
  for (std::string_view rest = flag.accepted; !rest.empty();) {
    const size_t end = std::min(rest.find('|'), rest.size());
    values.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return values;
}

bool accepts(const VllmFlag& flag, std::string_view value) {
  return std::ranges::count(accepted_values(flag), value) > 0;
}

void add_switch(cli::Command command, const VllmFlag& flag, std::vector<std::string>& notes) {
  command
      .add_flag_function(fmt::format("--{0},!--no-{0}", flag.name),
                         [&flag, &notes](int64_t count) {
                           const bool on = count > 0;
                           const std::string written =
                               fmt::format("--{}{}", on ? "" : "no-", flag.name);
                           if (!accepts(flag, on ? "on" : "off")) {
                             cli::refuse(written, flag.text);
                           }
                           notes.push_back(fmt::format("{}: {}", written, flag.text));
                         })
      .group("");
}

void add_value(cli::Command command, const VllmFlag& flag, std::vector<std::string>& notes) {
  command
      .add_option_function<std::string>(
          fmt::format("--{}", flag.name),
          [&flag, &notes](const std::string& value) {
            const std::string written = fmt::format("--{}", flag.name);
            if (!accepts(flag, value)) {
              cli::refuse(written,
                          *flag.accepted == '\0'
                              ? flag.text
                              : fmt::format("'{}' is not possible, only {}; {}", value,
                                            fmt::join(accepted_values(flag), " or "), flag.text));
            }
            notes.push_back(fmt::format("{} {}: {}", written, value, flag.text));
          },
          "")
      .last_wins()
      .group("");
}

// on, off or nothing.
std::string_view on_or_off(std::string_view value) {
  if (value == "on" || value == "true" || value == "True") {
    return "on";
  }
  return value == "off" || value == "false" || value == "False" ? "off" : "";
}

constexpr const char* kPrefixCaching = "--enable-prefix-caching";
constexpr const char* kNoPrefixCaching = "--no-enable-prefix-caching";

}  // namespace

void add_vllm_flags(cli::Command command, std::vector<std::string>& notes) {
  for (const VllmFlag& flag : kFlags) {
    if (flag.takes == Takes::kSwitch) {
      add_switch(command, flag, notes);
    } else {
      add_value(command, flag, notes);
    }
  }
}

std::string vllm_flag_table() {
  std::string table =
      "| flag of `vllm serve` | accepted | why, or what to do instead |\n|---|---|---|\n";
  for (const VllmFlag& flag : kFlags) {
    const bool is_switch = flag.takes == Takes::kSwitch;
    std::string accepted;
    for (const std::string_view value : accepted_values(flag)) {
      accepted += accepted.empty() ? "" : ", ";
      accepted += is_switch ? fmt::format("`--{}{}`", value == "on" ? "" : "no-", flag.name)
                            : fmt::format("`{}`", value);
    }
    table += fmt::format("| `--{}` | {} | {} |\n", flag.name, accepted.empty() ? "no" : accepted,
                         flag.text);
  }
  return table;
}

std::vector<std::string> plain_flags(std::vector<std::string> arguments, cli::Command command) {
  constexpr std::array<std::pair<const char*, const char*>, 4> kShort = {
      {{"-tp", "--tensor-parallel-size"},
       {"-pp", "--pipeline-parallel-size"},
       {"-dp", "--data-parallel-size"},
       {"-q", "--quantization"}}};
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string& argument = arguments[i];
    if (!argument.starts_with('-') || argument == "--") {
      continue;
    }
    const size_t end = std::min(argument.find('='), argument.size());
    std::string name = argument.substr(0, end);
    std::string rest = argument.substr(end);
    for (const auto& [letters, flag] : kShort) {
      name = name == letters && command.has_option(flag) ? flag : name;
    }
    std::string dashes = name;
    std::ranges::replace(dashes, '_', '-');
    name = command.has_option(dashes) ? dashes : name;
    if (name == kPrefixCaching || name == kNoPrefixCaching) {
      std::string_view value = rest.empty() ? "on" : on_or_off(rest.substr(1));
      if (rest.empty() && i + 1 < arguments.size() && !on_or_off(arguments[i + 1]).empty()) {
        value = on_or_off(arguments[i + 1]);
        arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
      if (!value.empty()) {
        const bool on = (value == "on") == (name == kPrefixCaching);
        name = kPrefixCaching;
        rest = on ? "=on" : "=off";
      }
    }
    arguments[i] = name + rest;
  }
  return arguments;
}

}  // namespace tandem
