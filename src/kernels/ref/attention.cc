// Attention as plain loops: one (row, head) after the other.
#include <cmath>
#include <limits>
#include <span>

#include "kernels/attention_partial.h"
#include "kernels/ref/ref.h"

namespace tandem::kernels::ref {

namespace {

float load(const std::byte* data, ElementType type, int64_t index) {
  if (type == ElementType::kF32) {
    return reinterpret_cast<const float*>(data)[index];
  }
  return bf16_to_f32(reinterpret_cast<const BFloat16*>(data)[index]);
}

// One split of one (row, head): `record` gets the maximum, the sum of exp(score - maximum) and the
// V vectors weighted by it, over the given tokens of the split.
void attend_split(const AttentionArgs& args, const AttentionSlice& slice, const float* q,
                  int64_t kv_head, int64_t split, const TokenRange& tokens, float* record) {
  const KvLayout& layout = args.layout;
  const int64_t width = layout.padded_head_dim;
  const int64_t first = split * kSplitTokens;
  float weights[kSplitTokens];
  float max = -std::numeric_limits<float>::infinity();
  for (int64_t t = tokens.begin; t < tokens.end; ++t) {
    const int64_t block = slice.block_table[(first + t) / layout.block_tokens];
    const int64_t slot = (first + t) % layout.block_tokens;
    const std::byte* key = args.kv + layout.key_offset(block, args.layer, kv_head);
    float score = 0.0F;
    for (int64_t dim = 0; dim < width; ++dim) {
      score += q[dim] * args.scale * load(key, layout.type, layout.key_element(slot, dim));
    }
    weights[t] = score;
    max = std::fmax(max, score);
  }
  float sum = 0.0F;
  float* values = record + kPartialValues;
  for (int64_t dim = 0; dim < width; ++dim) {
    values[dim] = 0.0F;
  }
  for (int64_t t = tokens.begin; t < tokens.end; ++t) {
    const float weight = std::exp(weights[t] - max);
    const int64_t block = slice.block_table[(first + t) / layout.block_tokens];
    const int64_t slot = (first + t) % layout.block_tokens;
    const std::byte* value = args.kv + layout.value_offset(block, args.layer, kv_head);
    sum += weight;
    for (int64_t dim = 0; dim < width; ++dim) {
      values[dim] += weight * load(value, layout.type, layout.value_element(slot, dim));
    }
  }
  record[kPartialMax] = max;
  record[kPartialSum] = sum;
}

// state <- state merged with the next split's record.
void fold(float* state, const float* record, int64_t width) {
  const float max = std::fmax(state[kPartialMax], record[kPartialMax]);
  const float keep = std::exp(state[kPartialMax] - max);
  const float add = std::exp(record[kPartialMax] - max);
  state[kPartialMax] = max;
  state[kPartialSum] = state[kPartialSum] * keep + record[kPartialSum] * add;
  for (int64_t dim = kPartialValues; dim < kPartialValues + width; ++dim) {
    state[dim] = state[dim] * keep + record[dim] * add;
  }
}

void write_attended(const AttentionArgs& args, int64_t row, int64_t head, const float* state) {
  const int64_t width = args.layout.padded_head_dim;
  for (int64_t dim = 0; dim < width; ++dim) {
    const float value =
        dim < args.layout.head_dim ? state[kPartialValues + dim] / state[kPartialSum] : 0.0F;
    const int64_t index = row * args.out_stride + head * width + dim;
    if (args.out_type == ElementType::kF32) {
      static_cast<float*>(args.out)[index] = value;
    } else {
      static_cast<BFloat16*>(args.out)[index] = f32_to_bf16(value);
    }
  }
}

int64_t attend_scratch_bytes(const AttentionArgs& args) {
  return 2 * partial_record_floats(args.layout) * static_cast<int64_t>(sizeof(float));
}

void attend_task(const AttentionArgs& args, const AttentionTask& task, void* scratch) {
  const AttentionSlice& slice = args.slices[task.slice];
  const int64_t width = args.layout.padded_head_dim;
  const int64_t group = query_group(args);
  float* state = static_cast<float*>(scratch);
  float* record = state + partial_record_floats(args.layout);
  for (int64_t r = 0; r < task.row_count; ++r) {
    const int64_t row = task.row_begin + r;
    const TokenRange context = row_tokens(args, slice, row);
    for (int64_t h = 0; h < group; ++h) {
      const int64_t head = task.kv_head * group + h;
      const float* q = args.q + (row * args.heads + head) * width;
      bool started = false;
      for (int64_t s = 0; s < task.split_count; ++s) {
        const int64_t split = task.split_begin + s;
        const TokenRange tokens = in_split(context, split);
        if (tokens.empty()) {  // before the row's window, or after the row
          continue;
        }
        float* target = started ? record : state;
        started = true;
        if (task.partial_offset >= 0) {
          target = args.partials + task.partial_offset + s * split_floats(args, task.row_count) +
                   (r * group + h) * partial_record_floats(args.layout);
        }
        attend_split(args, slice, q, task.kv_head, split, tokens, target);
        if (target == record) {
          fold(state, record, width);
        }
      }
      if (task.partial_offset < 0) {
        write_attended(args, row, head, state);
      }
    }
  }
}

void attend(const AttentionArgs& args, std::span<const AttentionTask> tasks, void* scratch) {
  for (const AttentionTask& task : tasks) {
    attend_task(args, task, scratch);
  }
}

}  // namespace

void fill_attention(Kernels& table) {
  table.attend_scratch_bytes = attend_scratch_bytes;
  table.attend = attend;
  table.fold = fold;
  table.write_attended = write_attended;
}

}  // namespace tandem::kernels::ref
