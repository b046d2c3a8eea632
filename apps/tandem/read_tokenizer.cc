#include "read_tokenizer.h"

#include "model/model_folder.h"

namespace tandem {

Result<std::unique_ptr<text::Tokenizer>> read_tokenizer(NodeOptions& node) {
  if (const auto folder = model::open_model_folder(node.model); !folder.ok()) {
    return folder.error();
  }
  ASSIGN_OR_RETURN(std::unique_ptr<text::Tokenizer> tokenizer, text::load_tokenizer(node.model));
  if (tokenizer->eos_id()) {
    node.end_tokens = {*tokenizer->eos_id()};
  }
  return tokenizer;
}

}  // namespace tandem
