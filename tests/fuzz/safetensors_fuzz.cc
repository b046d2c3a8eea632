// A safetensors file: what the header says must lie in the file.
#include <span>

#include "fuzz/fuzz.h"
#include "model/safetensors.h"

namespace tandem::model {
TANDEM_FUZZ_TARGET(input) {
  const auto tensors =
      parse_safetensors_header(std::as_bytes(std::span(input.data(), input.size())), "fuzz");
  if (!tensors.ok()) {
    CHECK(!tensors.error().message.empty());
    return;
  }
  int64_t last_end = 0;
  for (const TensorEntry& tensor : *tensors) {
    CHECK(tensor.begin >= 8 && tensor.begin <= tensor.end);
    CHECK(tensor.end <= static_cast<int64_t>(input.size()));
    if (tensor.bytes() > 0) {
      CHECK(tensor.begin >= last_end);
      last_end = tensor.end;
    }
    fuzz::use(format_shape(tensor.shape).size());
  }
}
}  // namespace tandem::model
