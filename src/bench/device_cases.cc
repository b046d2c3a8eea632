#include "bench/device_cases.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "kernels/kernels.h"

namespace tandem::bench {
namespace {

using device::AttentionOp;
using device::GateUpOp;
using device::GemmOp;
using kernels::AttentionSlice;
using kernels::KvLayout;

constexpr int64_t kMaxLayers = 256;  // layers of KV that attention takes in turn

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// ---------------------------------------------------------------- products

struct ProductShape {
  const char* name = "";
  int64_t n = 0;
  int64_t k = 0;
  bool gate_up = false;
  bool accumulate = false;  // into the residual
  bool is_head = false;     // the product with the vocabulary
};

std::vector<ProductShape> products_of(const model::ModelConfig& config) {
  const int64_t q = int64_t{config.heads} * config.head_dim;
  const int64_t qkv = q + int64_t{2} * config.kv_heads * config.head_dim;
  return {{"qkv", qkv, config.hidden},
          {"out", config.hidden, q, false, true},
          {"gate_up", int64_t{2} * config.intermediate, config.hidden, true},
          {"down", config.hidden, config.intermediate, false, true},
          {"head", config.vocabulary, config.hidden, false, false, true}};
}

DeviceCase make_product(DeviceStand& stand, const ProductShape& shape, int64_t rows,
                        int64_t rotated_bytes) {
  const device::NumberTypes numbers = stand.numbers();
  device::WeightMatrix w = stand.device().formats().matrix({.type = kCaseType}, shape.n, shape.k);
  const int64_t copies = std::max<int64_t>(1, rotated_bytes / w.stored_bytes);
  const void* x = stand.take(rows * shape.k * element_bytes(numbers.activation));
  const ElementType y_type = shape.accumulate ? numbers.residual : ElementType::kF32;
  void* y = stand.take(rows * shape.n * element_bytes(shape.gate_up ? kCaseType : y_type));
  DeviceCase made{.rows = rows};
  for (int64_t copy = 0; copy < copies; ++copy) {
    w.data = stand.take(w.stored_bytes);
    if (shape.gate_up) {
      made.ops.emplace_back(GateUpOp{.x = x,
                                     .x_type = numbers.activation,
                                     .x_stride = shape.k,
                                     .rows = rows,
                                     .w = w,
                                     .activated = y,
                                     .activated_stride = shape.n / 2});
    } else {
      made.ops.emplace_back(GemmOp{.x = x,
                                   .x_type = numbers.activation,
                                   .x_stride = shape.k,
                                   .rows = rows,
                                   .w = w,
                                   .y = y,
                                   .y_type = y_type,
                                   .y_stride = shape.n,
                                   .accumulate = shape.accumulate});
    }
  }
  made.work = work_of(made.ops.front());
  return made;
}

// ---------------------------------------------------------------- attention

struct Sequences {
  int32_t count = 0;
  int32_t rows_each = 1;
  int32_t context = 0;
};

// Slices of sequences whose blocks are shuffled over a pool. They lie in host memory, and an op
// that names them keeps them.
std::shared_ptr<std::vector<AttentionSlice>> slices_of(DeviceStand& stand,
                                                       const Sequences& sequences) {
  const int64_t blocks = divide_up(sequences.context, kCaseBlockTokens);
  std::vector<int32_t> table(static_cast<size_t>(sequences.count * blocks));
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937_64(1));
  const int32_t* on_device = stand.put(table);
  auto slices = std::make_shared<std::vector<AttentionSlice>>();
  for (int32_t s = 0; s < sequences.count; ++s) {
    slices->push_back({s * sequences.rows_each, sequences.rows_each,
                       sequences.context - sequences.rows_each, on_device + s * blocks});
  }
  return slices;
}

DeviceCase make_attention(DeviceStand& stand, const model::ModelConfig& config,
                          const Sequences& sequences, int64_t rotated_bytes) {
  KvLayout layout = {kCaseType,       1, config.kv_heads, config.head_dim, config.head_dim,
                     kCaseBlockTokens};
  const int64_t blocks = sequences.count * divide_up(sequences.context, kCaseBlockTokens);
  layout.layers = static_cast<int32_t>(
      std::clamp<int64_t>(rotated_bytes / (blocks * layout.block_bytes()), 1, kMaxLayers));
  const int64_t rows = int64_t{sequences.count} * sequences.rows_each;
  const int64_t columns = int64_t{config.heads} * config.head_dim;
  const ElementType q_type = stand.query_type(layout);
  const ElementType out_type = stand.numbers().attended;
  const int64_t workspace_bytes = stand.device().formats().attention_workspace_bytes(
      {.layout = layout,
       .heads = config.heads,
       .max_context = sequences.context,
       .threads = stand.device().caps().threads});
  const auto slices = slices_of(stand, sequences);
  AttentionOp op{.batch = {.slices = stand.put(*slices),
                           .host_slices = slices->data(),
                           .shape = {.rows = static_cast<int32_t>(rows),
                                     .slices = sequences.count,
                                     .max_context = sequences.context,
                                     .splits = sequences.count *
                                               divide_up(sequences.context, kernels::kSplitTokens)},
                           .layout = layout,
                           .heads = config.heads,
                           .workspace = stand.take_floats(workspace_bytes / int64_t{sizeof(float)}),
                           .workspace_floats = workspace_bytes / int64_t{sizeof(float)}},
                 .q = stand.take(rows * columns * element_bytes(q_type)),
                 .q_type = q_type,
                 .kv = stand.take(blocks * layout.block_bytes()),
                 .scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim)),
                 .out = stand.take(rows * columns * element_bytes(out_type)),
                 .out_stride = columns,
                 .out_type = out_type};
  DeviceCase made{.rows = rows, .context = sequences.context, .keeps = slices};
  made.before.emplace_back(device::AttentionPlanOp{op.batch});
  for (op.layer = 0; op.layer < layout.layers; ++op.layer) {
    made.ops.emplace_back(op);
  }
  made.work = work_of(made.ops.front());
  return made;
}

// The plan of a step instead of its attention.
DeviceCase make_plan(DeviceStand& stand, const model::ModelConfig& config,
                     const Sequences& sequences) {
  DeviceCase made = make_attention(stand, config, sequences, 0);
  made.ops = std::exchange(made.before, {});
  made.work = {};
  return made;
}

// ---------------------------------------------------------------- the ceilings and the link

DeviceCase make_copy(DeviceStand& stand, int64_t bytes) {
  DeviceCase made{.rows = bytes};
  made.ops.emplace_back(
      device::CopyOp{.target = stand.take(bytes), .source = stand.take(bytes), .bytes = bytes});
  made.work = work_of(made.ops.front());
  return made;
}

// `to_host`: from the device.
DeviceCase make_link_copy(DeviceStand& stand, int64_t bytes, bool to_host) {
  bytes = std::min(bytes, stand.pinned().bytes());
  std::byte* on_device = stand.take(bytes);
  DeviceCase made{.rows = bytes};
  made.ops.emplace_back(device::CopyOp{.target = to_host ? stand.pinned().data() : on_device,
                                       .source = to_host ? on_device : stand.pinned().data(),
                                       .bytes = bytes});
  made.work.bytes = static_cast<double>(bytes);  // over the link
  return made;
}

// Whole blocks that change tier.
DeviceCase make_kv_move(DeviceStand& stand, const model::ModelConfig& config, int64_t bytes,
                        bool to_host) {
  const KvLayout layout = {kCaseType,       config.layers,   config.kv_heads,
                           config.head_dim, config.head_dim, kCaseBlockTokens};
  const int64_t blocks =
      std::max<int64_t>(1, std::min(bytes, stand.pinned().bytes()) / layout.block_bytes());
  bytes = std::min(blocks * layout.block_bytes(),
                   stand.pinned().bytes() / layout.head_bytes() * layout.head_bytes());
  std::byte* on_device = stand.take(bytes);
  DeviceCase made{.rows = blocks};
  made.ops.emplace_back(
      device::KvMoveOp{.copy = {.target = to_host ? stand.pinned().data() : on_device,
                                .source = to_host ? on_device : stand.pinned().data(),
                                .bytes = bytes},
                       .layout = layout,
                       .to_host = to_host});
  made.work.bytes = static_cast<double>(bytes);  // over the link
  return made;
}

}  // namespace

DeviceCaseSizes tiny_sizes() {
  return {.product_rows = {1, 16},
          .decode_batches = {1, 4},
          .contexts = {64},
          .prompts = {64},
          .rows = {1, 16},
          .visitors = 4,
          .max_head_rows = 4,
          .max_sampled_rows = 4,
          .rotated_bytes = int64_t{1} << 20,
          .copied_bytes = int64_t{8} << 20,
          .link_bytes = int64_t{1} << 20,
          .peak_sides = {256}};
}

DeviceCaseSizes quick_sizes() {
  return {.product_rows = {1, 64, 4096},
          .decode_batches = {1, 16, 64},
          .contexts = {2048, 8192},
          .prompts = {4096},
          .rows = {64},
          .copied_bytes = int64_t{1} << 30,
          .peak_sides = {8192}};
}

std::vector<PlannedCase> ceiling_cases(const DeviceCaseSizes& sizes) {
  std::vector<PlannedCase> cases = {
      {"copy on the device", "",
       [bytes = sizes.copied_bytes](DeviceStand& stand) { return make_copy(stand, bytes); }}};
  for (const int64_t side : sizes.peak_sides) {
    cases.push_back({"gemm square", "", [side](DeviceStand& stand) {
                       return make_product(stand, {"square", side, side}, side, 0);
                     }});
  }
  return cases;
}

std::vector<PlannedCase> link_cases(const DeviceCaseSizes& sizes) {
  std::vector<PlannedCase> cases;
  for (const bool to_host : {true, false}) {
    cases.push_back({to_host ? "copy to the host" : "copy from the host", "",
                     [bytes = sizes.link_bytes, to_host](DeviceStand& stand) {
                       return make_link_copy(stand, bytes, to_host);
                     }});
  }
  return cases;
}

std::vector<PlannedCase> attention_cases(const std::string& shape, const model::ModelConfig& config,
                                         const DeviceCaseSizes& sizes) {
  std::vector<PlannedCase> cases;
  const auto add = [&](const char* name, const Sequences& sequences) {
    cases.push_back(
        {name, shape, [config, sequences, bytes = sizes.rotated_bytes](DeviceStand& stand) {
           return make_attention(stand, config, sequences, bytes);
         }});
  };
  for (const int32_t batch : sizes.decode_batches) {
    for (const int32_t context : sizes.contexts) {
      add("attention decode", {batch, 1, context});
    }
  }
  for (const int32_t prompt : sizes.prompts) {
    add("attention prefill", {1, prompt, prompt});
  }
  const Sequences planned = {sizes.decode_batches.back(), 1, sizes.contexts.back()};
  for (const bool to_host : {true, false}) {
    cases.push_back({to_host ? "kv to the host" : "kv from the host", shape,
                     [config, bytes = sizes.link_bytes, to_host](DeviceStand& stand) {
                       return make_kv_move(stand, config, bytes, to_host);
                     }});
  }
  cases.push_back({"attention plan", shape, [config, planned](DeviceStand& stand) {
                     return make_plan(stand, config, planned);
                   }});
  return cases;
}

std::vector<PlannedCase> product_cases(const std::string& shape, const model::ModelConfig& config,
                                       const DeviceCaseSizes& sizes) {
  std::vector<PlannedCase> cases;
  for (const ProductShape& product : products_of(config)) {
    for (const int64_t rows : sizes.product_rows) {
      if (product.is_head && rows > sizes.max_head_rows) {
        continue;
      }
      cases.push_back({std::string("gemm ") + product.name, shape,
                       [product, rows, bytes = sizes.rotated_bytes](DeviceStand& stand) {
                         return make_product(stand, product, rows, bytes);
                       }});
    }
  }
  return cases;
}

}  // namespace tandem::bench
