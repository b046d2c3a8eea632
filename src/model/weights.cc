#include "model/weights.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "gguf/files.h"
#include "model/checkpoint.h"
#include "model/gguf_source.h"
#include "model/packed_source.h"
#include "model/safetensors.h"
#include "model/weight_loader.h"
#include "model/weight_plan.h"

namespace tandem::model {
namespace {

Error missing(const WeightJob& job, const WeightSource& source) {
  const std::string name = source.name_in_file(job.tensor);
  std::string hint = name == job.tensor
                         ? "is the download complete, and does config.json belong to it?"
                         : "is the download complete?";
  if (name == "lm_head.weight") {
    hint =
        "if the model ties it to the embedding, config.json must say \"tie_word_embeddings\": "
        "true";
  }
  const std::string layer = job.tensor.substr(0, job.tensor.rfind('.'));
  for (const char* quantised : {".qweight", ".weight_packed"}) {
    if (source.find(layer + quantised) != nullptr) {
      hint = fmt::format(
          "the layer is quantised ('{}{}'), so config.json must say how, in quantization_config",
          layer, quantised);
    }
  }
  return invalid_argument(
      fmt::format("tensor '{}' {} is missing; {}", name, format_shape(job.shape), hint), name);
}

Status check_tensor(const WeightJob& job, const WeightSource& source) {
  const WeightSource::Tensor* tensor = source.find(job.tensor);
  if (tensor == nullptr) {
    return missing(job, source);
  }
  const TensorEntry& entry = *tensor->entry;
  const std::string_view file = source.file_name(tensor->file);
  const std::string name = source.name_in_file(job.tensor);
  if (!entry.type) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: tensor '{}' is {}; supported are F32, F16 and BF16", file, name,
                             entry.dtype.substr(0, 20)),
                 name};
  }
  if (job.is_vector() && entry.quantization != Quantization::kNone) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: tensor '{}' is a vector that is quantised as {}; vectors must be "
                             "numbers",
                             file, name, entry.dtype.substr(0, 20)),
                 name};
  }
  if (entry.shape != job.shape) {
    return invalid_argument(
        fmt::format("{}: tensor '{}' has shape {}, but the model's config asks for {}", file, name,
                    format_shape(entry.shape), format_shape(job.shape)),
        name);
  }
  return {};
}

// What the architecture has no place for. A bias would change the text, so it is refused; buffers
// such as rotary_emb.inv_freq are computed anew.
Status check_extra_tensors(const std::vector<WeightJob>& jobs, const WeightSource& source) {
  std::set<std::string_view> used;
  for (const WeightJob& job : jobs) {
    used.insert(job.tensor);
  }
  for (const auto& [name, tensor] : source.tensors()) {
    if (used.contains(name)) {
      continue;
    }
    if (name.starts_with("model.layers.") && name.ends_with(".bias")) {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("{}: tensor '{}' is a bias that this architecture does not have "
                               "here; only q, k and v biases are supported, with attention_bias",
                               source.file_name(tensor.file), name.substr(0, 100)),
                   name};
    }
    log::debug("tensor '{}' is not used", name);
  }
  return {};
}

// Numbers of a file of quantised weights are rounded, too: products read bf16.
void warn_of_rounding_beside_groups(const std::vector<WeightJob>& jobs,
                                    const WeightSource& source) {
  int64_t elements = 0;
  std::string name;
  for (const WeightJob& job : jobs) {
    const TensorEntry& entry = *source.find(job.tensor)->entry;
    const bool numbers = entry.quantization == Quantization::kNone &&
                         job.target.format.quantization == Quantization::kNone;
    if (!job.is_vector() && numbers && entry.type != job.target.format.type) {
      elements += job.n.logical * job.k.logical;
      name = name.empty() ? source.name_in_file(job.tensor) : name;
    }
  }
  if (elements > 0) {
    log::warn(
        "{} weights that are not quantised ('{}' ...) become bfloat16, which keeps fewer digits; "
        "--dtype float32 keeps them, and makes fp32 of quantised weights too",
        elements, name);
  }
}

void warn_of_rounding(const std::vector<WeightJob>& jobs, const WeightSource& source,
                      const WeightFormats& format) {
  if (format.from_file()) {
    return warn_of_rounding_beside_groups(jobs, source);
  }
  for (const WeightJob& job : jobs) {
    if (format == WeightFormats() && source.find(job.tensor)->entry->type == ElementType::kF16) {
      log::warn(
          "the checkpoint is float16 and runs as bfloat16, which keeps fewer digits; --dtype "
          "float32 runs it exactly");
      return;
    }
  }
}

Result<std::vector<std::unique_ptr<device::Memory>>> allocate(device::Device& device,
                                                              const WeightPlan& plan,
                                                              const std::string& name) {
  std::vector<std::unique_ptr<device::Memory>> memory;
  int64_t total_bytes = 0;
  for (const WeightPiece& piece : plan.pieces) {
    total_bytes += piece.bytes;
  }
  for (const WeightPiece& piece_plan : plan.pieces) {
    Result<std::unique_ptr<device::Memory>> piece =
        device.allocate({.bytes = piece_plan.bytes,
                         .purpose = device::MemoryPurpose::kWeights,
                         .matrices = piece_plan.matrices});
    if (!piece.ok()) {
      return Error{piece.error().code,
                   fmt::format("the weights need {} ({} bytes) as {} and do not fit: {}",
                               format_bytes(total_bytes), total_bytes, name, piece.error().message),
                   {}};
    }
    memory.push_back(std::move(piece).value());
  }
  return memory;
}

Status check_format(const WeightFormats& format, const device::Formats& formats) {
  if (!format.supported(formats)) {
    const device::WeightFormat& own = format.layers;
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("weights cannot be held as {}{} on this device; use bfloat16 or float32",
                    format.name(),
                    own.group > 0 ? fmt::format(" with scales of {}", own.group) : ""),
        own.quantization == Quantization::kNone ? "dtype" : "quantization"};
  }
  return {};
}

// Where every weight will lie, once the source has passed all checks that read no data.
Result<WeightPlan> check_and_plan(const WeightSource& source, const ModelConfig& config,
                                  const WeightFormats& format, const device::Formats& formats) {
  RETURN_IF_ERROR(check_format(format, formats));
  WeightPlan sizes = plan_weights(config, format, formats, {});
  for (const WeightJob& job : sizes.jobs) {
    RETURN_IF_ERROR(check_tensor(job, source));
  }
  RETURN_IF_ERROR(check_extra_tensors(sizes.jobs, source));
  return sizes;
}

}  // namespace

Status check_weights(const std::filesystem::path& path, const ModelConfig& config,
                     const WeightFormats& format, const device::Formats& formats) {
  RETURN_IF_ERROR(check_format(format, formats));
  ASSIGN_OR_RETURN(const std::unique_ptr<WeightSource> source, open_weights(path, config, format));
  RETURN_IF_ERROR(check_and_plan(*source, config, format, formats));
  return {};
}

Weights hollow_weights(const ModelConfig& config, const WeightFormats& format,
                       const device::Formats& formats) {
  return plan_weights(config, format, formats, {}).weights;
}

Result<std::unique_ptr<WeightSource>> open_weights(const std::filesystem::path& path,
                                                   const ModelConfig& config,
                                                   const WeightFormats& formats) {
  if (gguf::is_gguf(path)) {
    return GgufSource::open(path, formats);
  }
  if (config.quantization) {
    return PackedSource::open(path, config, formats);
  }
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(path));
  return std::unique_ptr<WeightSource>(std::make_unique<Checkpoint>(std::move(checkpoint)));
}

Result<Weights> load_weights(const std::filesystem::path& path, const ModelConfig& config,
                             device::Device& device, const LoadOptions& options) {
  RETURN_IF_ERROR(check_format(options.format, device.formats()));
  ASSIGN_OR_RETURN(const std::unique_ptr<WeightSource> source,
                   open_weights(path, config, options.format));
  return load_weights(*source, config, device, options);
}

Result<Weights> load_weights(const WeightSource& source, const ModelConfig& config,
                             device::Device& device, const LoadOptions& options) {
  const device::Formats& formats = device.formats();
  ASSIGN_OR_RETURN(const WeightPlan sizes, check_and_plan(source, config, options.format, formats));
  warn_of_rounding(sizes.jobs, source, options.format);

  ASSIGN_OR_RETURN(std::vector<std::unique_ptr<device::Memory>> memory,
                   allocate(device, sizes, options.format.name()));
  std::vector<std::byte*> pieces;
  pieces.reserve(memory.size());
  for (const auto& piece : memory) {
    pieces.push_back(piece->data());
  }
  WeightPlan plan = plan_weights(config, options.format, formats, pieces);
  RETURN_IF_ERROR(copy_weights(source, plan.jobs, device, options.on_progress));
  plan.weights.memory = std::move(memory);
  return std::move(plan.weights);
}

}  // namespace tandem::model
