// The tokenizer of the model that a command serves.
#pragma once

#include <memory>

#include "base/result.h"
#include "node/node.h"
#include "text/tokenizer.h"

namespace tandem {

// Read before the node is opened: its end token ends answers, too, and goes into `node`. What is
// wrong with the folder as such comes first.
Result<std::unique_ptr<text::Tokenizer>> read_tokenizer(NodeOptions& node);

}  // namespace tandem
