#include "node/run_kernels.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/json_values.h"
#include "base/log.h"
#include "device/cpu/machine.h"
#include "exec/code_digest.h"
#include "latency/profile.h"
#include "model/weights.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Absent: no such kernels, or not on this machine.
std::optional<kernels::Choice> usable(std::string_view text) {
  const Result<kernels::Choice> choice = kernels::parse_choice(text);
  return choice.ok() && kernels::kernel_set(*choice).ok() ? std::optional(*choice) : std::nullopt;
}

// What a given profile was measured with. Whatever is wrong with the file is said when it is used.
std::optional<kernels::Choice> of_profile(const ProfileOptions& options) {
  if (options.file.empty() && options.text.empty()) {
    return std::nullopt;
  }
  const Result<latency::Profile> profile = options.text.empty()
                                               ? latency::read_profile(options.file)
                                               : latency::parse_profile(options.text);
  return profile.ok() ? usable(profile->identity.isa) : std::nullopt;
}

// Everything that a measurement depends on.
fs::path path_of_kept(const NodeOptions& options, const device::ProductShape& shape) {
  if (options.kernels_folder.empty()) {
    return {};
  }
  std::string text = fmt::format(
      "{}\n{}\n{} of {} and {} CPUs\n{} {} {}\n{}", kCodeDigest, device::cpu_name(),
      options.device.threads, device::allowed_cpus().size(), device::quota_cpus(0), shape.n,
      shape.k, shape.weight_bytes, options.accelerator.has_value() ? "two tiers" : "one tier");
  if (shape.activations != Activations::kPlain) {
    text += fmt::format("\n{} activations", activations_name(shape.activations));
  }
  for (const kernels::Isa isa : kernels::available_isas()) {
    text += fmt::format("\n{}", kernels::isa_name(isa));
  }
  return options.kernels_folder / fmt::format("kernels-{}.json", latency::text_digest(text));
}

std::optional<kernels::Choice> read_kept(const fs::path& path) {
  if (path.empty()) {
    return std::nullopt;
  }
  std::ifstream file(path);
  const nlohmann::json kept = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  const nlohmann::json* kernels = json_member(kept, "kernels");
  const std::optional<std::string> name = kernels == nullptr ? std::nullopt : json_string(*kernels);
  return name ? usable(*name) : std::nullopt;
}

// Whole or not at all.
bool write_kept(const fs::path& path, const device::AcceleratorCaps& caps) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const fs::path part = fs::path(path).concat(".part");
  std::ofstream file(part);
  file << nlohmann::ordered_json{{"kernels", caps.kernels}, {"times", caps.kernel_why}}.dump(1)
       << "\n";
  file.close();
  if (!file) {
    return false;
  }
  fs::rename(part, path, error);
  return !error;
}

}  // namespace

RunKernels find_kernels(const NodeOptions& options, const model::ModelConfig& shape,
                        const model::WeightFormats& format) {
  RunKernels run;
  if (options.device.isa) {
    run.choice = options.device.isa;
    run.from = "as asked for";
    return run;
  }
  run.choice = of_profile(options.profile);
  if (run.choice) {
    run.from = "as the profile was measured";
    return run;
  }
  run.from = "this machine's usual";
  if (options.accelerator.has_value() && options.accelerator->hollow) {
    return run;  // no products are computed
  }
  run.products = device::ProductShape{
      .n = 2 * int64_t{shape.intermediate},
      .k = shape.hidden,
      .weight_bytes = model::weight_bytes(shape, format),
      .type = format.layers.type,
      .quantization = format.layers.quantization,
      .activations =
          device::weight_format(format.layers.type, format.layers.quantization, format.activations)
              .activations};
  run.kept = path_of_kept(options, *run.products);
  run.choice = read_kept(run.kept);
  if (run.choice) {
    run.from = fmt::format("measured at an earlier start, see '{}'", run.kept.string());
  }
  return run;
}

std::string settle_kernels(const RunKernels& run, const device::AcceleratorCaps& caps) {
  std::string from = run.from;
  if (!caps.kernel_why.empty()) {
    from = fmt::format("measured now: {}", caps.kernel_why);
    if (!run.kept.empty() && !write_kept(run.kept, caps)) {
      log::warn("cannot write '{}'; the next start measures again, and may choose otherwise",
                run.kept.string());
    }
  }
  log::info("kernels: {} ({})", caps.kernels, from);
  return from;
}

std::string use_recorded_kernels(const std::string& recorded,
                                 std::optional<kernels::Choice>& chosen) {
  if (chosen) {
    const std::string asked = kernels::choice_text(*chosen);
    if (asked == recorded) {
      return {};
    }
    return fmt::format(
        "the record was made with the kernels '{}', this replay is asked to use '{}': texts may "
        "differ in places",
        recorded, asked);
  }
  const Result<kernels::Choice> choice = kernels::parse_choice(recorded);
  if (!choice.ok()) {
    return "the record names no kernels that this build knows: texts may differ in places";
  }
  const Result<kernels::KernelSet> set = kernels::kernel_set(*choice);
  if (!set.ok()) {
    return fmt::format(
        "the record was made with the kernels '{}', others are used, so texts may differ in "
        "places: {}",
        recorded, set.error().message);
  }
  chosen = *choice;
  return {};
}

}  // namespace tandem
