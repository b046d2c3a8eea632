// Lines of batch files: the input's, and the output's that a continued run reads.
#include "fuzz/fuzz.h"
#include "openai/batch_line.h"

namespace tandem::openai {
TANDEM_FUZZ_TARGET_IN_TIME(input) {
  const BatchLine line = parse_batch_line(input, {});
  if (line.error.has_value()) {
    CHECK(!line.error_code.empty() && !line.error->message.empty() && line.body.empty());
  } else {
    CHECK(line.custom_id.has_value() && !line.body.empty());
  }
  // What is written about a line is read again.
  const BatchLineId id{7, hash_of_line(input)};
  const std::string failed = failed_batch_line(id, line.custom_id, line.error_code, "why");
  const Result<WrittenBatchLine> again = parse_written_batch_line(failed);
  CHECK(again.ok() && again->id == id && again->custom_id == line.custom_id && again->failed);
  CHECK(failed.find('\n') == failed.size() - 1, "a line in a line");
  const Result<WrittenBatchLine> written = parse_written_batch_line(input);
  CHECK(written.ok() ? written->id.number >= 1 : !written.error().message.empty());
}
}  // namespace tandem::openai
