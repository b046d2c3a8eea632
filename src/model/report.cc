#include "model/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "gguf/files.h"
#include "model/checkpoint.h"
#include "model/json_fields.h"
#include "model/weights.h"

namespace tandem::model {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxTokenizerBytes = int64_t{128} << 20;
constexpr int64_t kMaxTokenizerConfigBytes = int64_t{16} << 20;

// Byte-level where the tokenizer's pre-tokenizer or decoder says so, anywhere inside.
bool mentions_byte_level(const nlohmann::json& part) {
  return part.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).find("ByteLevel") !=
         std::string::npos;
}

std::string tokenizer_json_kind(const fs::path& file) {
  const Result<std::string> text = read_text_file(file, kMaxTokenizerBytes);
  if (!text.ok()) {
    return "unreadable: " + text.error().message;
  }
  const Result<JsonFields> fields = JsonFields::parse("tokenizer.json", *text);
  if (!fields.ok()) {
    return "unreadable: " + fields.error().message;
  }
  const nlohmann::json& json = fields->json();
  const auto model = json.find("model");
  std::string type = "unknown";
  if (model != json.end() && model->is_object() && model->contains("type") &&
      (*model)["type"].is_string()) {
    type = (*model)["type"].get<std::string>();
  } else if (model != json.end() && model->is_object() && model->contains("merges")) {
    type = "BPE";  // old files leave the type out
  }
  if (type == "BPE") {
    const bool byte_level =
        (json.contains("pre_tokenizer") && mentions_byte_level(json["pre_tokenizer"])) ||
        (json.contains("decoder") && mentions_byte_level(json["decoder"]));
    return byte_level ? "byte-level BPE (tokenizer.json)" : "SentencePiece BPE (tokenizer.json)";
  }
  return type.substr(0, 40) + " (tokenizer.json), not supported";
}

std::string tokenizer_kind(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / "tokenizer.json", ignored)) {
    return tokenizer_json_kind(folder / "tokenizer.json");
  }
  if (fs::exists(folder / "tokenizer.model", ignored)) {
    return "SentencePiece (tokenizer.model)";
  }
  return "none";
}

bool has_chat_template(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / "chat_template.jinja", ignored)) {
    return true;
  }
  const Result<std::string> text =
      read_text_file(folder / "tokenizer_config.json", kMaxTokenizerConfigBytes);
  if (!text.ok()) {
    return false;
  }
  const Result<JsonFields> fields = JsonFields::parse("tokenizer_config.json", *text);
  return fields.ok() && fields->has("chat_template");
}

MemoryNeed need_as(const WeightFormats& format, const ModelConfig& config, int64_t memory_bytes) {
  MemoryNeed need{.format = format,
                  .weight_bytes = weight_bytes(config, format),
                  .kv_bytes_per_token = kv_bytes_per_token(config, format.layers.type),
                  .kv_tokens = 0};
  need.kv_tokens = std::max<int64_t>(memory_bytes - need.weight_bytes, 0) / need.kv_bytes_per_token;
  return need;
}

Status describe_folder(const fs::path& path, ModelReport& report) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(path));
  for (const Checkpoint::File& file : checkpoint.files()) {
    report.files.push_back({file.name, static_cast<int64_t>(file.mapped->bytes().size())});
    for (const TensorEntry& tensor : file.tensors) {
      report.checkpoint_bytes[tensor.dtype.substr(0, 20)] += tensor.bytes();
    }
  }
  report.tokenizer = tokenizer_kind(path);
  report.has_chat_template = has_chat_template(path);
  return {};
}

Status describe_gguf(const fs::path& path, ModelReport& report) {
  ASSIGN_OR_RETURN(const gguf::Files files, gguf::Files::open(path));
  for (const gguf::Files::Part& part : files.parts()) {
    report.files.push_back({part.name, static_cast<int64_t>(part.mapped->bytes().size())});
    for (const gguf::Tensor& tensor : part.header.tensors) {
      report.checkpoint_bytes[gguf::type_name(tensor.type)] += tensor.bytes();
    }
  }
  const gguf::Metadata& metadata = files.metadata();
  ASSIGN_OR_RETURN(const auto kind, metadata.string("tokenizer.ggml.model"));
  ASSIGN_OR_RETURN(const auto cut, metadata.string("tokenizer.ggml.pre"));
  report.tokenizer = !kind              ? "none"
                     : *kind == "llama" ? "SentencePiece BPE (llama)"
                     : *kind == "gpt2"  ? fmt::format("byte-level BPE (gpt2, pre-tokenizer {})",
                                                      gguf::shown(cut.value_or("not named")))
                                        : fmt::format("{}, not supported", gguf::shown(*kind));
  report.has_chat_template = metadata.has("tokenizer.chat_template");
  return {};
}

}  // namespace

Result<ModelReport> describe_model(const fs::path& path, int64_t memory_bytes) {
  ModelReport report;
  ASSIGN_OR_RETURN(report.folder, open_model_folder(path));
  RETURN_IF_ERROR(gguf::is_gguf(path) ? describe_gguf(path, report)
                                      : describe_folder(path, report));
  report.parameters = parameter_count(report.folder.config);
  report.memory_bytes = memory_bytes;
  constexpr auto kBF16 = ElementType::kBF16;
  if (report.folder.stored) {
    report.needs.push_back(need_as(*report.folder.stored, report.folder.config, memory_bytes));
  }
  for (const device::WeightFormat& format :
       {device::WeightFormat{.type = kBF16}, device::WeightFormat{.type = ElementType::kF32},
        device::weight_format(kBF16, Quantization::kInt8),
        device::weight_format(kBF16, Quantization::kInt4),
        device::weight_format(kBF16, Quantization::kInt4Symmetric)}) {
    report.needs.push_back(need_as(format, report.folder.config, memory_bytes));
  }
  return report;
}

}  // namespace tandem::model
