#include "node/option_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>
#include <utility>

#include "device/cpu/proc_text.h"
#include "options/option_values.h"
#include "scheduler/policies/registry.h"

namespace tandem {
namespace {

OptionVariable element_type(std::optional<ElementType>& type) {
  return values::parsed_text(
      [&type](const std::string& text) -> Status {
        if (text == "auto") {
          type.reset();
        } else if (text == "bfloat16") {
          type = ElementType::kBF16;
        } else if (text == "float32" || text == "float") {
          type = ElementType::kF32;
        } else {
          return invalid_argument(
              fmt::format("'{}' is not possible; choose auto, bfloat16 or float32", text));
        }
        return {};
      },
      [&type] { return type ? std::string(element_name(*type)) : std::string("auto"); });
}

OptionVariable numa_choice(device::NumaChoice& choice) {
  return values::parsed_text(
      [&choice](const std::string& text) -> Status {
        ASSIGN_OR_RETURN(choice, device::parse_numa(text));
        return {};
      },
      [&choice] {
        return choice.mode == device::NumaMode::kAuto  ? std::string("auto")
               : choice.mode == device::NumaMode::kOff ? std::string("off")
                                                       : device::format_ranges(choice.nodes);
      });
}

OptionVariable prompts_to_host(PromptsToHost& variable) {
  return values::named<PromptsToHost>(
      variable, {{"staged", PromptsToHost::kStaged}, {"offload", PromptsToHost::kOffload}});
}

OptionVariable time_model(latency::TimeModel& model) {
  std::vector<values::NamedValue<latency::TimeModel>> names;
  for (const latency::TimeModel each :
       {latency::TimeModel::kModular, latency::TimeModel::kRegression,
        latency::TimeModel::kTable}) {
    names.push_back({latency::time_model_name(each), each});
  }
  return values::named(model, std::move(names));
}

// "+50%", "-20%"; also without sign or percent sign.
OptionVariable percent_more(int32_t& variable) {
  static constexpr int32_t kLeast = -90;
  static constexpr int32_t kMost = 1000;
  return values::parsed_text(
      [&variable](const std::string& text) -> Status {
        std::string_view digits = text;
        if (digits.ends_with('%')) {
          digits.remove_suffix(1);
        }
        if (digits.starts_with('+')) {
          digits.remove_prefix(1);
        }
        int32_t percent = 0;
        const char* const end = digits.data() + digits.size();
        const auto [read, error] = std::from_chars(digits.data(), end, percent);
        if (digits.empty() || error != std::errc() || read != end || percent < kLeast ||
            percent > kMost) {
          return invalid_argument(
              fmt::format("'{}' is no share such as +50% or -20%, from {}% to +{}%", text, kLeast,
                          kMost),
              "");
        }
        variable = percent;
        return {};
      },
      [&variable] { return variable == 0 ? std::string() : fmt::format("{:+}%", variable); });
}

OptionVariable quantization_choice(std::optional<Quantization>& quantization) {
  return values::parsed_text(
      [&quantization](const std::string& text) -> Status {
        if (text == "auto") {
          quantization.reset();
          return {};
        }
        for (const Quantization each : kQuantizations) {
          if (text == quantization_name(each)) {
            quantization = each;
            return {};
          }
        }
        return invalid_argument(fmt::format(
            "'{}' is not possible; choose auto, none, int8, int4 or int4-symmetric", text));
      },
      [&quantization] {
        return quantization ? std::string(quantization_name(*quantization)) : std::string("auto");
      });
}

OptionTable model_options(NodeOptions& node) {
  constexpr const char* kGroup = "Model";
  return {
      {.name = "model",
       .group = kGroup,
       .help =
           "Folder with config.json, *.safetensors and a tokenizer, a GGUF file, or the name of a "
           "model on the hub: ORG/NAME[@REVISION], ORG/NAME:FILE.gguf",
       .value = values::path(node.model),
       .other_names = "model"},
      {.name = "served-model-name",
       .group = kGroup,
       .help = "Names the model answers to; the first is shown (default: the folder's, file's or "
               "hub's name)",
       .value = values::texts(node.served_names)},
      {.name = "dtype",
       .group = kGroup,
       .help = "Weights: auto (the checkpoint's), bfloat16 or float32",
       .value = element_type(node.dtype),
       .recorded = Recorded::kAlways},
      {.name = "quantization",
       .group = kGroup,
       .help = "Weights of the layers in 8 or 4 bits, rounded when they are loaded: int8, int4 "
               "(groups of 32 with scale and minimum) or int4-symmetric (scale only); embedding "
               "and head stay bfloat16. auto: quantised weights of the files stay so and their "
               "others become bfloat16, unless --dtype is float32; checkpoints become --dtype. "
               "none: all become --dtype",
       .value = quantization_choice(node.quantization),
       .recorded = Recorded::kLater},
      {.name = "kv-cache-dtype",
       .group = kGroup,
       .help = "KV: auto (as the weights), bfloat16 or float32",
       .value = element_type(node.kv_dtype),
       .recorded = Recorded::kAlways},
      {.name = "max-model-len",
       .unit = "tokens",
       .group = kGroup,
       .help = "Tokens of a sequence, prompt and output (default: what model and memory allow)",
       .value = values::tokens_if_given(node.max_model_len, 1 << 30),
       .recorded = Recorded::kAlways},
      {.name = "seed",
       .group = kGroup,
       .help = "Seed from which requests without a seed get theirs",
       .value = values::whole(node.seed),
       .recorded = Recorded::kAlways}};
}

OptionDescriptor policy_name_option(NodeOptions& node) {
  std::string help =
      "Scheduling policy: auto (default: omniserve if a target is given or a profile of this model "
      "on this machine lies ready, else sarathi, on two tiers piggyback)";
  for (const PolicyDescriptor* policy : policies()) {
    help += fmt::format(", {} ({})", policy->name, policy->summary);
  }
  return {.name = "policy",
          .help = std::move(help),
          .value = values::text(node.policy),
          .recorded = Recorded::kAlways};
}

// Values are checked against their range by the policy that reads them, when it is made.
OptionTable policy_option_table(NodeOptions& node) {
  OptionTable table = {policy_name_option(node)};
  for (const PolicyOption* option : policy_options()) {
    table.push_back({.name = std::string(option->name),
                     .unit = std::string(option->unit),
                     .help = fmt::format("{}: {}", policies_that_read(*option), option->help),
                     .value = values::whole(node.policy_options[*option]),
                     .recorded = Recorded::kLater});
  }
  return table;
}

OptionTable scheduling_options(NodeOptions& node) {
  OptionTable table = policy_option_table(node);
  table.push_back(
      {.name = "admission",
       .help = "omniserve: off admits latency-sensitive requests whose targets are out of reach",
       .value = values::named(node.admission,
                              {{"on", AdmissionMode::kOn}, {"off", AdmissionMode::kOff}}),
       .recorded = Recorded::kLater});
  table.push_back({.name = "max-num-seqs",
                   .unit = "sequences",
                   .help = "Sequences that run at a time",
                   .value = values::whole(node.max_num_seqs, values::WholeRange{1, 65536}),
                   .recorded = Recorded::kAlways});
  table.push_back({.name = "max-num-batched-tokens",
                   .unit = "tokens",
                   .help = "Tokens of a step, prompts and decodes",
                   .value = values::tokens(node.max_num_batched_tokens, 1 << 20),
                   .recorded = Recorded::kAlways});
  for (OptionDescriptor& option : table) {
    option.group = "Scheduling";
  }
  return table;
}

OptionTable memory_options(NodeOptions& node) {
  constexpr const char* kGroup = "Memory";
  return {
      {.name = "device-memory",
       .group = kGroup,
       .help = "For weights, workspaces and KV, e.g. 8GiB (default: 80 % of free memory)",
       .value = values::bytes_if_given(node.memory_bytes),
       .key = "memory_bytes",
       .recorded = Recorded::kAlways},
      {.name = "gpu-memory-utilization",
       .group = kGroup,
       .help = "The same as a share of the memory that is free at the start, e.g. 0.9",
       .value = values::real_if_given(node.memory_share, 0.01, 1.0)},
      {.name = "num-kv-blocks",
       .unit = "blocks",
       .group = kGroup,
       .help = "KV blocks (default: what memory and --max-num-seqs allow)",
       .value = values::whole_if_given(node.kv_blocks, values::WholeRange{1, 1 << 30}),
       .key = "kv_blocks",
       .other_names = "--num-gpu-blocks-override",
       .recorded = Recorded::kAlways},
      {.name = "enable-prefix-caching",
       .group = kGroup,
       .help = "Reuse KV of equal prompt beginnings; alone: on; --no-enable-prefix-caching: off",
       .value = values::named(node.prefix_caching,
                              {{"on", PrefixCaching::kOn}, {"off", PrefixCaching::kOff}}),
       .key = "prefix_caching",
       .recorded = Recorded::kAlways},
      {.name = "block-size",
       .unit = "tokens",
       .group = kGroup,
       .help = "Tokens of a KV block (default: 32, more for small models)",
       .value = values::whole_if_given(node.block_tokens, values::WholeRange{0, INT32_MAX}),
       .recorded = Recorded::kAlways}};
}

OptionTable processor_options(NodeOptions& node) {
  constexpr const char* kGroup = "Processors";
  return {{.name = "threads",
           .unit = "threads",
           .group = kGroup,
           .help = "Compute threads (default: one for each core this process may use)",
           .value = values::whole_if_given(node.device.threads, values::WholeRange{1, 4096})},
          {.name = "numa",
           .group = kGroup,
           .help = "Memory nodes to compute on: auto (all that this process may use; threads, "
                   "weights and KV are placed on them), off (as if there were one) or a list such "
                   "as 0,2-3",
           .value = numa_choice(node.device.numa)}};
}

OptionTable tier_options(NodeOptions& node) {
  constexpr const char* kGroup = "Two tiers";
  return {{.name = "host-memory",
           .group = kGroup,
           .help = "For KV of offloaded requests and the queues to the host",
           .value = values::bytes_if_given(node.host_memory_bytes),
           .key = "host_memory_bytes",
           .recorded = Recorded::kLater},
          {.name = "prompts-to-host",
           .group = kGroup,
           .help = "How neo and its variants compute a prompt that goes to the host: staged (layer "
                   "by layer over two layers of the accelerator's memory) or offload (in its KV "
                   "blocks, copied afterwards)",
           .value = prompts_to_host(node.prompts_to_host),
           .recorded = Recorded::kLater},
          {.name = "timeline-out",
           .group = kGroup,
           .help = "At the end, write what ran when (the last spans of each stream and worker) to "
                   "this file, for Perfetto or chrome://tracing",
           .value = values::path(node.timeline_out)},
          {.name = "group-stages",
           .unit = "layers",
           .group = kGroup,
           .help = "Layers launched together; offloaded tokens that are ready join before each "
                   "group",
           .value = values::whole(node.group_stages, values::WholeRange{1, 1024}),
           .recorded = Recorded::kLater},
          {.name = "hop-patience",
           .group = kGroup,
           .help = "How long a host worker may take for one layer of one token before another one "
                   "tries",
           .value = values::duration(node.hop_patience)}};
}

OptionTable step_time_options(NodeOptions& node) {
  constexpr const char* kGroup = "Step times";
  return {{.name = "profile",
           .group = kGroup,
           .help = "Step times of this model on this machine, as `tandem profile` writes them; "
                   "measured and written first if the file does not exist (default: a file in the "
                   "user's cache folder, for policies that need it)",
           .value = values::path(node.profile.file)},
          {.name = "time-model",
           .group = kGroup,
           .help = "Which of the profile's models predicts: modular (by modules, as OmniServe), "
                   "regression (as HyGen) or table (as SLINFER)",
           .value = time_model(node.profile.model),
           .recorded = Recorded::kLater},
          {.name = "time-model-error",
           .group = kGroup,
           .help = "A drill: policies believe that steps take so much longer than predicted, such "
                   "as +50% or -20%",
           .value = percent_more(node.profile.error_percent),
           .recorded = Recorded::kLater}};
}

OptionTable queue_options(NodeOptions& node) {
  constexpr const char* kGroup = "Queue and record";
  constexpr values::WholeRange kQueue{1, 1 << 24};
  return {{.name = "max-queue",
           .unit = "requests",
           .group = kGroup,
           .help = "Waiting latency-sensitive requests; more are refused with 429",
           .value = values::whole(node.max_queue, kQueue)},
          {.name = "max-queue-flex",
           .unit = "requests",
           .group = kGroup,
           .help = "Waiting best-effort requests; more are refused with 429",
           .value = values::whole(node.max_queue_flex, kQueue)},
          {.name = "record-out",
           .group = kGroup,
           .help = "Write the run to this file for `tandem replay` (holds prompts)",
           .value = values::path(node.record_out)},
          {.name = "record-limit",
           .group = kGroup,
           .help = "Largest size of that file",
           .value = values::bytes(node.record_limit_bytes),
           .key = "record_limit_bytes"}};
}

OptionTable metric_options(NodeOptions& node) {
  return {{.name = "no-vllm-metrics",
           .group = "Operation",
           .help = "Publish tandem_* metrics only",
           .value = values::switch_off(node.vllm_metrics)}};
}

}  // namespace

OptionTable node_option_table(NodeOptions& options) {
  OptionTable table;
  for (const auto part : {model_options, scheduling_options, memory_options, processor_options,
                          tier_options, step_time_options, queue_options, metric_options}) {
    OptionTable rows = part(options);
    std::ranges::move(rows, std::back_inserter(table));
  }
  return table;
}

}  // namespace tandem
