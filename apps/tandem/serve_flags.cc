#include "serve_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "api/option_table.h"
#include "cli/option_flags.h"
#include "device/open/open.h"
#include "node/option_table.h"
#include "options/option_values.h"
#include "scheduler/policies/hygen.h"
#include "scheduler/policies/registry.h"
#include "shared_options.h"
#include "vllm_flags.h"

namespace tandem {
namespace {

OptionTable log_options(ServeFlags& flags, const std::string& group) {
  OptionTable table = {log_level_option(flags.log_level),
                       {.name = "log-format",
                        .help = "text, or json: one object a line",
                        .value = values::one_of(flags.log_format, {"text", "json"})}};
  for (OptionDescriptor& option : table) {
    option.group = group;
  }
  return table;
}

// The accelerator played by this machine's cores.
OptionVariable emulation(std::optional<device::AcceleratorSpec>& accelerator) {
  return values::parsed_text(
      [&accelerator](const std::string& text) -> Status {
        if (text.empty()) {
          accelerator.reset();
          return {};
        }
        ASSIGN_OR_RETURN(accelerator, device::accelerator_spec(device::kEmulatedBackend,
                                                               text == "auto" ? "" : text));
        return {};
      },
      [&accelerator] {
        const bool is_emulated = accelerator && accelerator->backend == device::kEmulatedBackend;
        return !is_emulated                   ? std::string()
               : accelerator->options.empty() ? std::string("auto")
                                              : accelerator->options;
      });
}

// A step budget that is not given is measured at the start.
void measure_step_budgets(NodeOptions& node) {
  for (const PolicyDescriptor* policy : policies()) {
    if (policy->traits.measured_budget != nullptr) {
      node.policy_options[*policy->traits.measured_budget] = 0;
    }
  }
}

// Those of the node that every command with a model has, but the model's folder.
OptionTable shared_node_options(NodeOptions& node) {
  OptionTable table = node_option_table(node);
  std::erase_if(table, [](const OptionDescriptor& option) {
    return option.name == "model" || option.group == "Queue and record" ||
           option.group == "Operation";
  });
  return table;
}

OptionTable text_options(ServeFlags& flags) {
  return {{.name = "tokenizer",
           .group = "Model",
           .help = "Folder or GGUF file with another tokenizer (default: the model's)",
           .value = values::text(flags.tokenizer)},
          {.name = "chat-template",
           .group = "Model",
           .help = "File with another chat template, or the template itself (default: the "
                   "model's)",
           .value = values::text(flags.chat_template)}};
}

OptionTable device_options(ServeFlags& flags) {
  return {{.name = "device",
           .group = "Processors",
           .help = "Where to run: auto (serve: the first GPU if it can serve the model, else "
                   "the CPUs; other commands: the CPUs), cpu, cuda, cuda:N for GPU N, or the file "
                   "of a back end",
           .value = values::text(flags.device),
           .key = "device_choice"}};
}

OptionTable emulation_options(NodeOptions& node) {
  return {{.name = "emulate-accelerator",
           .group = "Two tiers",
           .help = "Two tiers on this machine: some cores play an accelerator with "
                   "--device-memory of its own, the others attend for offloaded requests; "
                   "cores=N,host-cores=N or auto",
           .value = emulation(node.accelerator)}};
}

OptionTable step_budget_options(ServeFlags& flags) {
  return {{.name = "step-budget",
           .group = "Scheduling",
           .help = fmt::format(
               "{}: time of a step into which best effort must fit, such as 20ms, or the file that "
               "`tandem tune -o` wrote: then it also follows the goals of that file",
               policies_that_read(kHyGenStepBudget)),
           .value = values::text(flags.step_budget)},
          {.name = "fixed-step-budget",
           .group = "Scheduling",
           .help = "The budget of that file stays as it is",
           .value = values::switch_on(flags.fixed_step_budget)}};
}

OptionTable operation_options(ServeFlags& flags) {
  constexpr const char* kGroup = "Operation";
  OptionTable table = {{.name = "drain-timeout",
                        .group = kGroup,
                        .help = "After SIGTERM, how long running requests may still take",
                        .value = values::duration(flags.drain_timeout)}};
  std::ranges::move(log_options(flags, kGroup), std::back_inserter(table));
  table.push_back({.name = "check",
                   .group = kGroup,
                   .help = "Check flags, keys, certificates and the model's files, show the memory "
                           "plan, and end: code 0, or 2 with the reason",
                   .value = values::switch_on(flags.check)});
  return table;
}

}  // namespace

OptionTable command_option_table(ServeFlags& flags) {
  OptionTable table = text_options(flags);
  for (OptionTable part :
       {hub::hub_option_table(flags.hub), device_options(flags), emulation_options(flags.node),
        step_budget_options(flags), operation_options(flags)}) {
    std::ranges::move(part, std::back_inserter(table));
  }
  return table;
}

void add_log_flags(cli::Command command, ServeFlags& flags, const std::string& group) {
  cli::add_options(command, log_options(flags, group));
}

void add_text_flags(cli::Command command, ServeFlags& flags) {
  cli::add_options(command, text_options(flags));
}

OptionTable node_flag_table(ServeFlags& flags) {
  measure_step_budgets(flags.node);
  OptionTable table = shared_node_options(flags.node);
  const auto threads = std::ranges::find(table, "threads", &OptionDescriptor::name);
  table.insert(threads, device_options(flags).front());
  const auto host_memory = std::ranges::find(table, "host-memory", &OptionDescriptor::name);
  table.insert(host_memory, emulation_options(flags.node).front());
  const auto admission = std::ranges::find(table, "admission", &OptionDescriptor::name);
  for (OptionTable budget = step_budget_options(flags); !budget.empty(); budget.pop_back()) {
    table.insert(admission, budget.back());
  }
  return table;
}

void add_node_flags(cli::Command command, ServeFlags& flags) {
  cli::add_options(command, node_flag_table(flags));
  name_isa_variable(command);
}

void add_serve_flags(cli::Command command, ServeFlags& flags) {
  const OptionTable node = node_option_table(flags.node);
  const OptionTable server = api::server_option_table(flags.server);
  cli::add_option(command, model_or_hub_option(flags.node));
  cli::add_options(command, hub::hub_option_table(flags.hub));
  add_text_flags(command, flags);
  add_node_flags(command, flags);
  cli::add_options(command, options_of_group(node, "Queue and record"));
  for (const char* group : {"Classes and targets", "HTTP", "Limits", "TLS", "Operation"}) {
    cli::add_options(command, options_of_group(server, group));
  }
  cli::add_options(command, batches::batch_option_table(flags.batches));
  cli::add_options(command, options_of_group(node, "Operation"));
  cli::add_options(command, operation_options(flags));
  command.add_option("--config",
                     "YAML file with any of these flags as keys (also TANDEM_CONFIG); flags given "
                     "here win");
  command.add_flag_callback(
      "--list-vllm-flags",
      [] {
        fmt::print("{}", vllm_flag_table());
        cli::end_parse();
      },
      "Say what becomes of the flags of `vllm serve` that are not listed here");
  command.group_new_options("Operation");
  add_vllm_flags(command, flags.vllm_notes);
  command.add_flag("--no-enable-prefix-caching", "").group("");  // see plain_flags
  command.let_last_win();
  command.footer(
      "\nExamples:\n"
      "  tandem serve models/llama --host 0.0.0.0 --api-key-file keys\n"
      "  tandem serve models/llama --default-class best_effort --ttft-slo 2s\n"
      "  tandem serve models/llama --config tandem.yaml --check\n"
      "\nA flag may also be a key of the --config file (max-num-seqs: 64) or a variable\n"
      "(TANDEM_MAX_NUM_SEQS=64). docs/serving.md says more.");
}

}  // namespace tandem
