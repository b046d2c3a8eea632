#include <fmt/format.h>

#include "base/mapped_file.h"
#include "gguf/files.h"
#include "text/gguf_tokenizer.h"
#include "text/json_fields.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/tiktoken.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_json.h"

namespace tandem::text {
namespace {

constexpr int64_t kLargestModelBytes = int64_t{256} << 20;

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::filesystem::path& model_dir) {
  if (gguf::is_gguf(model_dir)) {
    ASSIGN_OR_RETURN(const gguf::Files files, gguf::Files::open(model_dir));
    return load_gguf_tokenizer(files.metadata());
  }
  const std::filesystem::path json = model_dir / "tokenizer.json";
  const std::filesystem::path model = model_dir / "tokenizer.model";
  const bool has_json = may_exist(json);
  if (!has_json && !may_exist(model)) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{}: has neither tokenizer.json nor tokenizer.model; give a model "
                             "folder with one of them",
                             model_dir.string()),
                 {}};
  }
  ASSIGN_OR_RETURN(const TokenizerConfig config, read_tokenizer_config(model_dir));
  if (has_json) {
    return load_tokenizer_json(json, config);
  }
  ASSIGN_OR_RETURN(const std::string content, read_file(model, kLargestModelBytes));
  if (is_tiktoken(content)) {
    return load_tiktoken(content, model.string(), config);
  }
  return load_sentencepiece(content, model.string(), config);
}

}  // namespace tandem::text
