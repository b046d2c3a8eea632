// A GGUF file: its header, the model's shape, the tokenizer and the chat template in it, and the
// values of its tensors.
#include <span>

#include "fuzz/fuzz.h"
#include "fuzz/tokenizer_fuzz.h"
#include "gguf/files.h"
#include "model/gguf_config.h"
#include "model/gguf_source.h"
#include "text/gguf_tokenizer.h"

namespace tandem::model {
namespace {

void check_tensors(const std::string& path, int64_t file_bytes, const WeightFormats& formats) {
  const auto source = GgufSource::open(path, formats);
  if (!source.ok()) {
    CHECK(!source.error().message.empty());
    return;
  }
  for (const auto& [name, tensor] : (*source)->tensors()) {
    const TensorEntry& entry = *tensor.entry;
    CHECK(entry.begin >= 0 && entry.begin < entry.end);
    CHECK(entry.bytes() < 64 * file_bytes, "{} bytes out of {}", entry.bytes(), file_bytes);
    if ((*source)->load(tensor.file, entry.begin, entry.end).ok()) {
      const std::byte* data = (*source)->data(tensor.file, entry.begin);
      fuzz::use(static_cast<size_t>(data[entry.bytes() - 1]));
    }
    (*source)->release(tensor.file, entry.begin, entry.end);
  }
}

}  // namespace

TANDEM_FUZZ_TARGET(input) {
  const auto header =
      gguf::parse_header(std::as_bytes(std::span(input.data(), input.size())), "fuzz");
  if (!header.ok()) {
    CHECK(!header.error().message.empty());
    return;
  }
  int64_t last_end = 0;
  for (const gguf::Tensor& tensor : header->tensors) {
    CHECK(tensor.begin >= last_end && tensor.end <= static_cast<int64_t>(input.size()));
    last_end = tensor.end;
  }
  const auto tokenizer = text::load_gguf_tokenizer(header->metadata);
  if (tokenizer.ok()) {
    fuzz::check_tokenizer(**tokenizer);
  } else {
    CHECK(!tokenizer.error().message.empty());
  }
  fuzz::use(text::gguf_template_options(header->metadata).ok() ? 1 : 0);
  static const fuzz::MemoryFile file;
  file.write(input);
  const auto file_bytes = static_cast<int64_t>(input.size());
  check_tensors(file.path(), file_bytes, WeightFormats());
  if (const auto files = gguf::Files::open(file.path()); files.ok()) {
    const auto config = gguf_config(*files);
    const auto stored = config.ok() ? gguf_weight_formats(*files, *config) : std::nullopt;
    if (stored) {
      check_tensors(file.path(), file_bytes, *stored);
    }
  }
}
}  // namespace tandem::model
