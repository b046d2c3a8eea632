// The cases of ops that treat rows one by one: norms, RoPE, routing and gathering, sampling.
#include <algorithm>
#include <random>
#include <utility>

#include "bench/device_cases.h"
#include "kernels/routed_row.h"

namespace tandem::bench {
namespace {

constexpr int64_t kMaxSampleSets = 16;

// 0, 1, .. in random order.
std::vector<int32_t> shuffled(int64_t count) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] = static_cast<int32_t>(i);
  }
  std::shuffle(values.begin(), values.end(), std::mt19937_64(2));
  return values;
}

DeviceCase one_op(device::Op op, int64_t rows) {
  DeviceCase made{.rows = rows};
  made.work = work_of(op);
  made.ops.push_back(std::move(op));
  return made;
}

DeviceCase make_norm(DeviceStand& stand, const model::ModelConfig& config, int64_t rows) {
  const device::NumberTypes numbers = stand.numbers();
  return one_op(
      device::RmsNormOp{.x = stand.take(rows * config.hidden * element_bytes(numbers.residual)),
                        .x_type = numbers.residual,
                        .x_stride = config.hidden,
                        .rows = rows,
                        .hidden = config.hidden,
                        .weight = stand.take_floats(config.hidden),
                        .epsilon = config.rms_epsilon,
                        .y = stand.take(rows * config.hidden * element_bytes(numbers.activation)),
                        .y_type = numbers.activation,
                        .y_stride = config.hidden},
      rows);
}

// What RopeWriteOp and RopeRouteOp have in common.
template <class RopeOp>
RopeOp rope_of(DeviceStand& stand, const model::ModelConfig& config, int64_t rows) {
  RopeOp op;
  op.layout = {kCaseType, 1, config.kv_heads, config.head_dim, config.head_dim, kCaseBlockTokens};
  op.heads = config.heads;
  op.rows = rows;
  op.qkv_stride = int64_t{config.head_dim} * (config.heads + 2 * config.kv_heads);
  op.qkv = stand.take_floats(rows * op.qkv_stride);
  op.cos = stand.take_floats(rows * config.head_dim / 2);
  op.sin = stand.take_floats(rows * config.head_dim / 2);
  op.norm_epsilon = config.rms_epsilon;
  return op;
}

DeviceCase make_rope(DeviceStand& stand, const model::ModelConfig& config, int64_t rows) {
  auto op = rope_of<device::RopeWriteOp>(stand, config, rows);
  // Each row the last token of a sequence.
  std::vector<int32_t> slots(static_cast<size_t>(rows));
  for (size_t i = 0; i < slots.size(); ++i) {
    slots[i] = static_cast<int32_t>(i * 7 % kCaseBlockTokens);
  }
  op.blocks = stand.put(shuffled(rows));
  op.slots = stand.put(slots);
  op.kv = stand.take(rows * op.layout.block_bytes());
  op.q_type = stand.query_type(op.layout);
  op.q = stand.take(rows * config.heads * config.head_dim * element_bytes(op.q_type));
  return one_op(op, rows);
}

DeviceCase make_row_gather(DeviceStand& stand, const model::ModelConfig& config, int64_t rows) {
  return one_op(device::RowGatherOp{.x = stand.take_floats(2 * rows * config.hidden),
                                    .stride = config.hidden,
                                    .rows = stand.put(shuffled(rows)),
                                    .count = rows,
                                    .y = stand.take_floats(rows * config.hidden)},
                rows);
}

// What a layer does for its visitors: their rows leave, others come back.
DeviceCase make_visit(DeviceStand& stand, const model::ModelConfig& config, int64_t rows) {
  const device::NumberTypes numbers = stand.numbers();
  const int64_t residual_floats =
      config.hidden * element_bytes(numbers.residual) / int64_t{sizeof(float)};
  const int64_t attended_bytes =
      int64_t{config.heads} * config.head_dim * element_bytes(numbers.attended);
  const int32_t* places = stand.put(shuffled(rows));
  auto route = rope_of<device::RopeRouteOp>(stand, config, rows);
  route.ring = stand.take(rows * kernels::RoutedRow(route.layout, route.heads).bytes());
  route.ring_rows = places;
  route.residual = stand.take_floats(rows * residual_floats);
  route.residual_stride = residual_floats;
  route.residual_columns = residual_floats;
  route.residual_store = stand.take_floats(rows * residual_floats);
  route.store_stride = residual_floats;
  route.residual_slots = places;
  const device::TailGatherOp gather{.rows = rows,
                                    .returns = stand.take(rows * attended_bytes),
                                    .attended_row_bytes = attended_bytes,
                                    .return_rows = places,
                                    .attended = stand.take(rows * attended_bytes),
                                    .attended_pitch_bytes = attended_bytes,
                                    .residual_store = route.residual_store,
                                    .store_stride = residual_floats,
                                    .residual_slots = places,
                                    .residual = stand.take_floats(rows * residual_floats),
                                    .residual_stride = residual_floats,
                                    .residual_columns = residual_floats};
  DeviceCase made = one_op(route, rows);
  made.ops.emplace_back(gather);
  made.together = 2;
  made.work = made.work + work_of(gather);
  return made;
}

// Sampling uses the logits up, so each launch of a timing has its own, made anew before it.
DeviceCase make_sample(DeviceStand& stand, const model::ModelConfig& config, int64_t rows,
                       const kernels::SampleRow& how, int64_t rotated_bytes) {
  const int64_t set_floats = rows * config.vocabulary;
  const int64_t set_bytes = set_floats * int64_t{sizeof(float)};
  const int64_t sets = std::clamp<int64_t>(rotated_bytes / set_bytes, 1, kMaxSampleSets);
  std::vector<float> logits(static_cast<size_t>(set_floats));
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  std::ranges::generate(logits, [&] { return normal(random); });
  std::vector<kernels::SampleRow> samples(static_cast<size_t>(rows), how);
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].seed = i;
  }
  const float* fresh = stand.put(logits);
  device::SampleOp op{.stride = config.vocabulary,
                      .vocabulary = config.vocabulary,
                      .rows = stand.put(samples),
                      .results = stand.put(std::vector<kernels::SampleResult>(samples.size())),
                      .row_count = rows,
                      .tokens = stand.put(std::vector<int32_t>(samples.size())),
                      .greedy = how.temperature == 0.0F};
  DeviceCase made{.rows = rows, .max_launches = static_cast<int32_t>(sets)};
  for (int64_t set = 0; set < sets; ++set) {
    op.logits = stand.take_floats(set_floats);
    made.ops.emplace_back(op);
    made.before.emplace_back(device::CopyOp{op.logits, fresh, set_bytes});
  }
  made.work = work_of(made.ops.front());
  return made;
}

}  // namespace

std::vector<PlannedCase> row_cases(const std::string& shape, const model::ModelConfig& config,
                                   const DeviceCaseSizes& sizes) {
  std::vector<PlannedCase> cases;
  for (const int64_t rows : sizes.rows) {
    const auto add = [&](const char* name, auto make) {
      cases.push_back({name, shape, [make, config, rows](DeviceStand& stand) {
                         return make(stand, config, rows);
                       }});
    };
    add("rms_norm", make_norm);
    add("rope_write", make_rope);
    add("row_gather", make_row_gather);
    if (rows > sizes.max_sampled_rows) {
      continue;
    }
    const kernels::SampleRow greedy{.temperature = 0.0F};
    const kernels::SampleRow top_p{.temperature = 0.8F, .top_p = 0.95F};
    for (const auto& [name, how] : {std::pair{"sample greedy", greedy}, {"sample top-p", top_p}}) {
      add(name, [how = how, bytes = sizes.rotated_bytes](
                    DeviceStand& stand, const model::ModelConfig& its, int64_t count) {
        return make_sample(stand, its, count, how, bytes);
      });
    }
  }
  cases.push_back({"route and gather", shape, [config, rows = sizes.visitors](DeviceStand& stand) {
                     return make_visit(stand, config, rows);
                   }});
  return cases;
}

}  // namespace tandem::bench
