// Bodies and queries of /v1/batches and /v1/files, and what the database keeps of them as JSON.
#include "base/percent_encoding.h"
#include "batches/batch_request.h"
#include "batches/data_folder.h"
#include "batches/objects_json.h"
#include "fuzz/fuzz.h"

namespace tandem::batches {
TANDEM_FUZZ_TARGET_IN_TIME(input) {
  const Result<BatchObject> batch = parse_batch_request(input, {});
  if (batch.ok()) {
    CHECK(is_object_id(batch->input_file_id) && batch->expires_at >= 3600);
    CHECK(parse_metadata(metadata_json(batch->metadata)) == batch->metadata);
    fuzz::use(batch_json(*batch, {}).size());
  } else {
    CHECK(!batch.error().message.empty());
  }
  for (const Result<ListRange>& range : {parse_batch_range(input), parse_file_range(input)}) {
    CHECK(range.ok() ? range->limit >= 1 : !range.error().param.empty());
  }
  CHECK(percent_decode(input).size() <= input.size() && query_decode(input).size() <= input.size());
  fuzz::use(parse_metadata(input).size() + parse_faults(input).size());
}
}  // namespace tandem::batches
