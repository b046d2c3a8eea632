#include "piggyback/workers/test_support.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/check.h"

namespace tandem::piggyback {
namespace {

using Random = std::mt19937_64;

void put(std::byte* data, ElementType type, int64_t i, float value) {
  if (type == ElementType::kF32) {
    reinterpret_cast<float*>(data)[i] = value;
  } else {
    reinterpret_cast<BFloat16*>(data)[i] = f32_to_bf16(value);
  }
}

// In -2 .. 2.
float uniform(Random& random) {
  return static_cast<float>(static_cast<int32_t>(random())) * 0x1p-30F;
}

const kernels::Kernels* table_of(kernels::Isa isa) {
  const Result<const kernels::Kernels*> table = kernels::kernels_for(isa);
  CHECK(table.ok(), "{}", table.error().message);
  return *table;
}

}  // namespace

HostRows::HostRows(const HostShape& shape, const std::vector<int32_t>& positions, uint64_t seed)
    : shape_(shape), positions_(positions) {
  Random random(seed);
  layout_ = {.type = shape.type,
             .layers = shape.layers,
             .kv_heads = shape.kv_heads,
             .head_dim = shape.head_dim,
             .padded_head_dim = (shape.head_dim + 31) / 32 * 32,
             .block_tokens = shape.block_tokens};
  routed_row_ = kernels::RoutedRow(layout_, shape.kv_heads * shape.group);
  int32_t blocks = 0;
  for (const int32_t position : positions) {
    const int32_t count = position / shape.block_tokens + 1;
    std::vector<int32_t>& table = tables_.emplace_back(static_cast<size_t>(count));
    std::iota(table.begin(), table.end(), blocks);
    blocks += count;
  }
  std::vector<int32_t> shuffled(static_cast<size_t>(blocks));
  std::iota(shuffled.begin(), shuffled.end(), 0);
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  for (std::vector<int32_t>& table : tables_) {
    for (int32_t& block : table) {
      block = shuffled[static_cast<size_t>(block)];
    }
  }
  // Random everywhere: what lies behind a context must not matter. Padding dims are zero.
  const auto bytes = static_cast<size_t>(blocks * layout_.block_bytes());
  original_.resize(bytes);
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      for (int64_t head = 0; head < shape.kv_heads; ++head) {
        std::byte* keys = original_.data() + layout_.key_offset(block, layer, head);
        std::byte* values = original_.data() + layout_.value_offset(block, layer, head);
        for (int64_t slot = 0; slot < shape.block_tokens; ++slot) {
          for (int64_t dim = 0; dim < shape.head_dim; ++dim) {
            put(keys, shape.type, layout_.key_element(slot, dim), uniform(random));
            put(values, shape.type, layout_.value_element(slot, dim), uniform(random));
          }
        }
      }
    }
  }
  const auto rows = static_cast<int64_t>(positions.size());
  auto* routed = static_cast<std::byte*>(routed_.require(rows * routed_row_.bytes()));
  std::memset(routed, 0, static_cast<size_t>(rows * routed_row_.bytes()));
  const int64_t width = layout_.padded_head_dim;
  for (int64_t row = 0; row < rows; ++row) {
    std::byte* start = routed + row * routed_row_.bytes();
    for (int64_t i = 0; i < int64_t{routed_row_.heads} * width; ++i) {
      put(start, ElementType::kF32, i, i % width < shape.head_dim ? uniform(random) : 0.0F);
    }
    for (int64_t i = 0; i < shape.kv_heads * width; ++i) {
      const bool real = i % width < shape.head_dim;
      put(start + routed_row_.key_offset(), shape.type, i, real ? uniform(random) : 0.0F);
      put(start + routed_row_.value_offset(), shape.type, i, real ? uniform(random) : 0.0F);
    }
  }
  out_pitch_ = result_bytes();
  out_.require(rows * out_pitch_);
  pool_.require(static_cast<int64_t>(bytes));
  reset();
}

void HostRows::reset() {
  std::memcpy(pool_.require(0), original_.data(), original_.size());
  std::memset(out_.require(0), 0xff, positions_.size() * static_cast<size_t>(out_pitch_));
}

int64_t HostRows::result_bytes() const {
  return int64_t{routed_row_.heads} * layout_.padded_head_dim * element_bytes(shape_.out_type);
}

AttentionWorkersOptions HostRows::options() {
  constexpr int32_t kMostThreads = 4;
  const int32_t longest = *std::ranges::max_element(positions_) + 1;
  const PartialRooms rooms = partial_rooms(layout_, routed_row_.heads, longest, kMostThreads);
  return {.spec = {.layout = layout_,
                   .kv = static_cast<std::byte*>(pool_.require(0)),
                   .routed = static_cast<const std::byte*>(routed_.require(0)),
                   .routed_row_bytes = routed_row_.bytes(),
                   .results = static_cast<std::byte*>(out_.require(0)),
                   .result_row_bytes = out_pitch_,
                   .result_type = shape_.out_type,
                   .heads = routed_row_.heads,
                   .scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim)),
                   .windows = shape_.windows},
          .kernels = table_of(shape_.isa),
          .partials = rooms,
          .partial_memory = static_cast<std::byte*>(partials_.require(rooms.bytes())),
          .clock = &clock_};
}

std::vector<HopTask> HostRows::tasks(int32_t layer) {
  std::vector<HopTask> tasks;
  for (size_t row = 0; row < positions_.size(); ++row) {
    const auto index = static_cast<int32_t>(row);
    tasks.push_back({.hop = {index, 1},
                     .layer = layer,
                     .position = positions_[row],
                     .hop_row = index,
                     .block_table = tables_[row].data()});
  }
  return tasks;
}

void HostRows::store(int32_t layer, size_t row) {
  const auto* routed = static_cast<const std::byte*>(routed_.require(0)) +
                       static_cast<int64_t>(row) * routed_row_.bytes();
  auto* pool = static_cast<std::byte*>(pool_.require(0));
  const int64_t block = tables_[row].back();
  const int64_t slot = positions_[row] % layout_.block_tokens;
  const auto bytes = static_cast<size_t>(element_bytes(layout_.type));
  for (int64_t head = 0; head < layout_.kv_heads; ++head) {
    for (int64_t dim = 0; dim < layout_.padded_head_dim; ++dim) {
      const int64_t from = (head * layout_.padded_head_dim + dim) * static_cast<int64_t>(bytes);
      std::memcpy(pool + layout_.key_offset(block, layer, head) +
                      layout_.key_element(slot, dim) * static_cast<int64_t>(bytes),
                  routed + routed_row_.key_offset() + from, bytes);
      std::memcpy(pool + layout_.value_offset(block, layer, head) +
                      layout_.value_element(slot, dim) * static_cast<int64_t>(bytes),
                  routed + routed_row_.value_offset() + from, bytes);
    }
  }
}

std::vector<std::byte> HostRows::plain(int32_t layer) {
  const AttentionWorkersOptions given_options = options();
  const AttentionSpec& given = given_options.spec;
  const auto rows = static_cast<int64_t>(positions_.size());
  const int64_t width = int64_t{given.heads} * layout_.padded_head_dim;
  AlignedBuffer q;
  AlignedBuffer out;
  auto* queries = static_cast<float*>(q.require(rows * width * int64_t{sizeof(float)}));
  std::vector<kernels::AttentionSlice> slices;
  for (size_t row = 0; row < positions_.size(); ++row) {
    const auto index = static_cast<int64_t>(row);
    store(layer, row);
    std::memcpy(queries + index * width,
                static_cast<const std::byte*>(routed_.require(0)) + index * routed_row_.bytes(),
                static_cast<size_t>(width) * sizeof(float));
    slices.push_back({static_cast<int32_t>(row), 1, positions_[row], tables_[row].data()});
  }
  kernels::AttentionArgs args;
  args.q = queries;
  args.kv = given.kv;
  args.layout = layout_;
  args.layer = layer;
  args.heads = given.heads;
  args.scale = given.scale;
  args.window = shape_.windows.empty() ? 0 : shape_.windows[static_cast<size_t>(layer)];
  args.slices = slices.data();
  args.slice_count = static_cast<int32_t>(slices.size());
  args.out = out.require(rows * out_pitch_);
  args.out_stride = width;
  args.out_type = shape_.out_type;
  kernels::AttentionPlan plan;
  kernels::plan_attention(args, 1, plan);
  AlignedBuffer scratch;
  const kernels::Kernels& table = *given_options.kernels;
  table.attend(args, plan.tasks, scratch.require(table.attend_scratch_bytes(args)));
  const auto* bytes = static_cast<const std::byte*>(args.out);
  return {bytes, bytes + rows * out_pitch_};
}

std::vector<std::byte> HostRows::results() const {
  const auto* bytes = static_cast<const std::byte*>(out_.data());
  return {bytes, bytes + static_cast<int64_t>(positions_.size()) * out_pitch_};
}

const std::vector<std::byte>& HostRows::pool_bytes() {
  const auto* bytes = static_cast<const std::byte*>(pool_.data());
  pool_copy_.assign(bytes, bytes + original_.size());
  return pool_copy_;
}

Answers::Answers(AttentionHost& attention) : attention_(attention) {
  attention.set_listener([this](const AnswerNotice&) {
    const std::lock_guard lock(mutex_);
    ++calls_;
    called_.notify_all();
  });
}

const std::vector<HopAnswer>& Answers::wait(size_t count) {
  while (true) {
    int64_t calls = 0;
    {
      const std::lock_guard lock(mutex_);
      calls = calls_;
    }
    if (look().size() >= count) {
      return all_;
    }
    std::unique_lock lock(mutex_);
    called_.wait(lock, [&] { return calls_ != calls; });
  }
}

const std::vector<HopAnswer>& Answers::look() {
  attention_.take_answers(all_);
  return all_;
}

std::unique_ptr<AttentionWorkers> start(const AttentionWorkersOptions& options) {
  Result<std::unique_ptr<AttentionWorkers>> attention = AttentionWorkers::create(options);
  CHECK(attention.ok(), "{}", attention.error().message);
  return std::move(attention).value();
}

std::vector<HopAnswer> run_all(AttentionHost& attention, const std::vector<HopTask>& tasks) {
  Answers answers(attention);
  attention.submit(tasks);
  std::vector<HopAnswer> all = answers.wait(tasks.size());
  attention.set_listener(nullptr);
  std::sort(all.begin(), all.end(),
            [](const HopAnswer& a, const HopAnswer& b) { return a.hop.slot < b.hop.slot; });
  return all;
}

void Gate::pass() {
  std::unique_lock lock(mutex_);
  ++arrived_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return open_; });
}

void Gate::open() {
  const std::lock_guard lock(mutex_);
  open_ = true;
  changed_.notify_all();
}

void Gate::wait_for_arrivals(int32_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return arrived_ >= count; });
}

}  // namespace tandem::piggyback
