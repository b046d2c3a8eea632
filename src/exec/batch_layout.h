// The rows of a step: from the engine's slices to the arrays that the kernels read, packed into one
// piece of staging memory so that one copy brings a step's input to the device. Plain arithmetic;
// owns nothing; engine thread.
//
// Rows of a step are the tokens of its slices, slices in order. Samples are the slices' samples in
// order; each names the row whose logits it is drawn from (the last of its slice), so a row that is
// sampled several times is named several times.
//
// Slices whose KV goes straight to the host come last. Their blocks are places in the
// staging layers, handed out here in the order of the slices: 0, 1, ..
//
// Addresses: what every step has (ids, positions, blocks, slots, sampled rows, slices, samples)
// lies at the start of the staging place, each array with room for the next power of two. So the
// steps of a bucket of sizes have these arrays at the same addresses, which a captured graph could
// hold.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/ops.h"
#include "exec/history_blocks.h"
#include "kernels/attention.h"
#include "kernels/sample.h"
#include "plan/step.h"

namespace tandem {

// How much of everything a step has.
struct StepSize {
  int64_t rows = 0;
  int64_t slices = 0;
  int64_t samples = 0;
  int64_t table_blocks = 0;  // entries of all block tables, as far as the slices reach
  int64_t banned = 0;
  int64_t biases = 0;
  int64_t history_tokens = 0;  // of the KV blocks that penalties look at
  int64_t history_tables = 0;  // entries: where each sample's history lies among these
  int64_t scored = 0;          // prompt tokens whose log-probabilities are reported
};

// Slices whose KV lies in the same memory.
struct SliceInputs {
  device::AttentionShape shape;                          // rows counts from the first slice's
  const kernels::AttentionSlice* slices = nullptr;       // [shape.slices]
  const kernels::AttentionSlice* host_slices = nullptr;  // the same, as the host has laid them out
};

// A step's input in device memory.
struct StepInputs {
  int32_t rows = 0;
  int32_t sample_count = 0;
  bool every_row_is_sampled_in_order = false;   // sampled_rows is 0, 1, .. rows-1
  const int32_t* ids = nullptr;                 // [rows]
  const int32_t* positions = nullptr;           // [rows]
  const int32_t* blocks = nullptr;              // [rows] block that takes the row's K and V
  const int32_t* slots = nullptr;               // [rows] slot in it
  SliceInputs pooled;                           // of the first rows: KV in the pool
  SliceInputs staged;                           // of the last rows: KV in the staging layers
  const int32_t* sampled_rows = nullptr;        // [samples]
  const kernels::SampleRow* samples = nullptr;  // [samples]
  int32_t scored_count = 0;
  const int32_t* scored_rows = nullptr;        // [scored]
  const kernels::SampleRow* scored = nullptr;  // [scored] each with its given token
};

// Staging memory and where its bytes will lie on the device; both 64-byte aligned.
struct StagingPlace {
  std::byte* host = nullptr;
  std::byte* device = nullptr;
};

// What a step may use; an input beyond it is the engine's bug.
struct StepBounds {
  ExecutorLimits limits;
  int32_t vocabulary = 0;
};

// `histories` is used until the step is laid out.
StepSize measure_step(const StepInput& input, HistoryBlocks& histories);

// Bytes that lay_out_step writes, at most.
int64_t staging_bytes(const StepSize& size, const ExecutorLimits& limits);

// Writes the arrays of `input` to place.host, with addresses that hold at place.device. `size` and
// `histories` are what measure_step made of it.
StepInputs lay_out_step(const StepInput& input, const StepSize& size, const StepBounds& bounds,
                        HistoryBlocks& histories, const StagingPlace& place);

}  // namespace tandem
