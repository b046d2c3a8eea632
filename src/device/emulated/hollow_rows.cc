#include "device/emulated/hollow_rows.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <variant>

namespace tandem::device {
namespace {

constexpr size_t kNumbers = 8192;
constexpr int64_t kRowStep = 97;      // rows begin at different numbers
constexpr size_t kMostWritten = 256;  // places remembered

}  // namespace

HollowRows::HollowRows(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  for (size_t i = 0; i < kNumbers; ++i) {
    // Each half of a float is finite too: gathers move two bf16 as one.
    bfloats_.push_back(f32_to_bf16(uniform(random)));
    floats_.push_back(bf16_to_f32(bfloats_.back()));
  }
}

bool HollowRows::stand_in(const Op& op) {
  return std::visit([&](const auto& one) { return stand_in_for(one); }, op);
}

void HollowRows::fill(const Rows& rows) {
  if (rows.rows <= 0 || rows.data == nullptr) {
    return;
  }
  const int64_t row_bytes = rows.stride * element_bytes(rows.type);
  auto* begin = static_cast<std::byte*>(rows.data);
  for (Rows& known : written_) {
    auto* known_begin = static_cast<std::byte*>(known.data);
    const bool alike = known.type == rows.type && known.stride == rows.stride &&
                       known.columns == rows.columns && begin >= known_begin;
    const int64_t distance = alike ? begin - known_begin : -1;
    if (alike && distance % row_bytes == 0 && distance / row_bytes <= known.rows) {
      const int64_t wanted = distance / row_bytes + rows.rows;
      if (wanted > known.rows) {
        const int64_t first = known.rows;
        known.rows = wanted;
        write(known, first);
      }
      return;
    }
  }
  if (written_.size() == kMostWritten) {
    written_.clear();
  }
  written_.push_back(rows);
  write(rows, 0);
}

void HollowRows::write(const Rows& rows, int64_t first) const {
  const int64_t element = element_bytes(rows.type);
  const auto* numbers = rows.type == ElementType::kF32
                            ? reinterpret_cast<const std::byte*>(floats_.data())
                            : reinterpret_cast<const std::byte*>(bfloats_.data());
  constexpr auto kCount = static_cast<int64_t>(kNumbers);
  for (int64_t row = first; row < rows.rows; ++row) {
    std::byte* to = static_cast<std::byte*>(rows.data) + row * rows.stride * element;
    int64_t from = row * kRowStep % kCount;
    for (int64_t column = 0; column < rows.columns;) {
      const int64_t count = std::min(rows.columns - column, kCount - from);
      std::memcpy(to + column * element, numbers + from * element,
                  static_cast<size_t>(count * element));
      column += count;
      from = 0;
    }
  }
}

bool HollowRows::stand_in_for(const kernels::EmbedArgs& args) {
  fill({args.y, ElementType::kF32, args.rows, args.y_stride, args.y_stride});
  return true;
}

bool HollowRows::stand_in_for(const kernels::RmsNormArgs& args) {
  fill({args.y, args.y_type, args.rows, args.y_stride, args.y_stride});
  return true;
}

bool HollowRows::stand_in_for(const kernels::GemmArgs& args) {
  if (args.store == kernels::GemmStore::kSiluMul) {
    fill({args.activated, args.w.type, args.rows, args.y_stride, args.w.n / 2});
  } else if (args.store == kernels::GemmStore::kWrite) {
    fill({args.y, ElementType::kF32, args.rows, args.y_stride, args.w.n});
  }
  return true;  // what is added to stays as finite as it is
}

bool HollowRows::stand_in_for(const kernels::RopeTableArgs& args) {
  fill({args.cos, ElementType::kF32, args.rows, args.half_dim, args.half_dim});
  fill({args.sin, ElementType::kF32, args.rows, args.half_dim, args.half_dim});
  return true;
}

// The KV keeps the zeros that it was allocated with.
bool HollowRows::stand_in_for(const kernels::RopeWriteArgs& args) {
  const int64_t columns = int64_t{args.heads} * args.layout.padded_head_dim;
  fill({args.q, ElementType::kF32, args.rows, columns, columns});
  return true;
}

bool HollowRows::stand_in_for(const AttentionOp& op) {
  int64_t rows = 0;
  for (int32_t i = 0; i < op.args.slice_count; ++i) {
    const kernels::AttentionSlice& slice = op.args.slices[i];
    rows = std::max<int64_t>(rows, int64_t{slice.row_begin} + slice.row_count);
  }
  fill({op.args.out, op.args.out_type, rows, op.args.out_stride,
        int64_t{op.args.heads} * op.args.layout.padded_head_dim});
  return true;
}

bool HollowRows::stand_in_for(const kernels::RowGatherArgs& args) {
  fill({args.y, ElementType::kF32, args.count, args.stride, args.stride});
  return true;
}

// Sampling leaves garbage where its logits were.
bool HollowRows::stand_in_for(const kernels::SampleArgs& args) {
  const auto* logits = reinterpret_cast<const std::byte*>(args.logits);
  std::erase_if(written_, [&](const Rows& rows) {
    const auto* begin = static_cast<const std::byte*>(rows.data);
    return logits >= begin && logits < begin + rows.rows * rows.stride * element_bytes(rows.type);
  });
  return false;
}

}  // namespace tandem::device
