// The tail rows of a group of stages: from the hop core's visits to the arrays that the ops read,
// packed into one piece of staging memory. Plain arithmetic; owns nothing; engine thread.
//
// At each stage the visitors' rows stand behind the residents', in the order bound; at the last
// stage they stand behind the residents' sampled rows and are sampled with them. What sampling
// needs of them is laid out apart (SampleRowWriter): few groups have a last stage.
#pragma once

#include <cstdint>
#include <span>

#include "exec/batch_layout.h"
#include "exec/batch_sections.h"
#include "piggyback/core/hop_types.h"
#include "plan/step.h"

namespace tandem {

// One stage's visitors, in device memory.
struct TailRows {
  int32_t rows = 0;
  bool alone = false;                    // the residents have no part in this stage
  const int32_t* ids = nullptr;          // [rows] of tokens; stage 0 reads them
  const int32_t* positions = nullptr;    // [rows]
  const int32_t* return_rows = nullptr;  // [rows] of the attention results; not at stage 0
  const int32_t* ring_rows = nullptr;    // [rows] that take q, k and v; not at the last stage
  const int32_t* slots = nullptr;        // [rows] of the residual store
};

// Bytes for `visits` rows in all stages of a group.
int64_t visitor_bytes(int64_t visits);

// Writes the rows of a group, stage after stage.
class VisitorWriter {
 public:
  VisitorWriter(int64_t visits, const StagingPlace& place)
      : VisitorWriter(visits, SectionCarver(place)) {}

  TailRows add_stage(std::span<const piggyback::Visit> visits);

 private:
  VisitorWriter(int64_t visits, SectionCarver carver);

  Section<int32_t> ids_;
  Section<int32_t> positions_;
  Section<int32_t> return_rows_;
  Section<int32_t> ring_rows_;
  Section<int32_t> slots_;
};

}  // namespace tandem
