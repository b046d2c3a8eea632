#include "node/option_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>
#include <utility>

#include "device/cpu/proc_text.h"
#include "kernels/choice.h"
#include "kernels/isa.h"
#include "options/option_values.h"
#include "scheduler/policies/omniserve.h"
#include "scheduler/policies/piggyback.h"
#include "scheduler/policies/registry.h"
#include "scheduler/policies/sarathi.h"

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
      [&type] { return type ? std::string(element_name(*type)) : std::string("auto"); },
      {"auto", "bfloat16", "float32"});
}

// The policies of the table, and auto.
OptionVariable policy_choice(std::string& policy) {
  std::vector<std::string> names = {"auto"};
  for (const std::string_view name : policy_names()) {
    names.emplace_back(name);
  }
  return values::parsed_text(
      [&policy, names](const std::string& text) -> Status {
        if (!text.empty() && std::ranges::find(names, text) == names.end()) {
          return invalid_argument(
              fmt::format("unknown policy '{}' (known: {})", text, fmt::join(names, ", ")),
              "policy");
        }
        policy = text;
        return {};
      },
      [&policy] { return policy; }, names);
}

// A family of kernels or a mixture of some.
OptionVariable kernel_choice(std::optional<kernels::Choice>& choice) {
  return values::parsed_text(
      [&choice](const std::string& text) -> Status {
        if (text.empty() || text == "auto") {
          choice.reset();
          return {};
        }
        ASSIGN_OR_RETURN(choice, kernels::parse_choice(text));
        return {};
      },
      [&choice] { return choice ? kernels::choice_text(*choice) : std::string("auto"); });
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

// Absent: not a whole number, with or without a sign and a percent sign.
std::optional<int64_t> parse_percent(std::string_view text) {
  if (text.ends_with('%')) {
    text.remove_suffix(1);
  }
  if (text.starts_with('+')) {
    text.remove_prefix(1);
  }
  int64_t percent = 0;
  const char* const end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, percent);
  const bool whole = !text.empty() && error == std::errc() && read == end;
  return whole ? std::optional(percent) : std::nullopt;
}

// "+50%", "-20%"; also without sign or percent sign.
OptionVariable percent_more(int32_t& variable) {
  constexpr int64_t kLeast = -90;
  constexpr int64_t kMost = 1000;
  OptionVariable shown = values::parsed_text(
      {}, [&variable] { return variable == 0 ? std::string() : fmt::format("{:+}%", variable); });
  shown.range = {.min = kLeast, .max = kMost};
  shown.assign = [&variable](const OptionValue& value, const OptionRange& range) -> Status {
    const auto* text = std::get_if<std::string>(&value);
    const auto min = std::get<int64_t>(range.min);
    const auto max = std::get<int64_t>(range.max);
    const std::optional<int64_t> percent = parse_percent(text == nullptr ? "" : *text);
    if (!percent || *percent < min || *percent > max) {
      return invalid_argument(fmt::format("'{}' is no share such as +50% or -20%, from {}% to +{}%",
                                          text == nullptr ? "" : *text, min, max));
    }
    variable = static_cast<int32_t>(*percent);
    return {};
  };
  return shown;
}

OptionVariable quantization_choice(std::optional<Quantization>& quantization) {
  std::vector<std::string> names = {"auto"};
  for (const Quantization each : kQuantizations) {
    names.emplace_back(quantization_name(each));
  }
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
      },
      std::move(names));
}

OptionTable model_options(NodeOptions& node) {
  constexpr const char* kGroup = "Model";
  return {
      {.name = "model",
       .group = kGroup,
       .help = "Folder with config.json, *.safetensors and a tokenizer, or a GGUF file",
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
      {.name = "activations",
       .group = kGroup,
       .help = "Activations in products with quantised weights: auto (bfloat16) or int8, rounded "
               "in groups of 32. Most processors compute products of bytes faster, and answers "
               "lose some precision",
       .value = values::named<Activations>(
           node.activations, {{activations_name(Activations::kPlain), Activations::kPlain},
                              {activations_name(Activations::kInt8), Activations::kInt8}}),
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
  std::string help = fmt::format(
      "Scheduling policy: auto (default: {} if a target is given or a profile of this model on "
      "this machine lies ready, else {}, on two tiers {})",
      kOmniServe.name, kSarathi.name, kPiggyback.name);
  for (const PolicyDescriptor* policy : policies()) {
    help += fmt::format(", {} ({})", policy->name, policy->summary);
  }
  return {.name = "policy",
          .help = std::move(help),
          .value = policy_choice(node.policy),
          .recorded = Recorded::kAlways};
}

// 0 asks that a budget which can be measured be measured at the start.
values::WholeRange range_of(const PolicyOption& option) {
  const bool measured = std::ranges::any_of(policies(), [&](const PolicyDescriptor* policy) {
    return policy->traits.measured_budget == &option;
  });
  return {measured ? std::min(option.min, 0) : option.min, option.max};
}

std::string policies_that_admit() {
  std::vector<std::string_view> names = policy_names();
  std::erase_if(names, [](std::string_view name) { return !policy_traits(name).admits; });
  return fmt::format("{}", fmt::join(names, ", "));
}

// A policy that is made checks its values once more: code sets some, too.
OptionTable policy_option_table(NodeOptions& node) {
  OptionTable table = {policy_name_option(node)};
  for (const PolicyOption* option : policy_options()) {
    table.push_back({.name = std::string(option->name),
                     .unit = std::string(option->unit),
                     .help = fmt::format("{}: {}", policies_that_read(*option), option->help),
                     .value = values::whole(node.policy_options[*option], range_of(*option)),
                     .recorded = Recorded::kLater});
  }
  return table;
}

OptionTable scheduling_options(NodeOptions& node) {
  OptionTable table = policy_option_table(node);
  table.push_back({.name = "admission",
                   .help = fmt::format(
                       "{}: off admits latency-sensitive requests whose targets are out of reach",
                       policies_that_admit()),
                   .value = values::named(
                       node.admission, {{"on", AdmissionMode::kOn}, {"off", AdmissionMode::kOff}}),
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

std::vector<std::string_view> known_families() {
  std::vector<std::string_view> names;
  std::ranges::transform(kernels::known_isas(), std::back_inserter(names), kernels::isa_name);
  return names;
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
           .value = numa_choice(node.device.numa)},
          {.name = "isa",
           .group = kGroup,
           .help = fmt::format(
               "Kernels to compute with: auto (the fastest, measured at the first start), {}, or "
               "several, such as avx2:8,avx512bf16 (products of up to 8 rows by avx2)",
               fmt::join(known_families(), ", ")),
           .value = kernel_choice(node.device.isa)}};
}

OptionTable tier_options(NodeOptions& node) {
  constexpr const char* kGroup = "Two tiers";
  return {
      {.name = "host-memory",
       .group = kGroup,
       .help = "For KV of offloaded requests and the queues to the host",
       .value = values::bytes_if_given(node.host_memory_bytes),
       .key = "host_memory_bytes",
       .recorded = Recorded::kLater},
      {.name = "prompts-to-host",
       .group = kGroup,
       .help = "How neo, apex and their variants compute a prompt that goes to the host: staged "
               "(layer by layer over two layers of the accelerator's memory) or offload (in "
               "its KV blocks, copied afterwards)",
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
           .unit = "percent",
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
