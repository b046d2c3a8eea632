#include "device/emulated/op_label.h"

#include <variant>

namespace tandem::device {
namespace {

constexpr const char* kRows = "rows";

OpLabel label(const CopyOp& op) { return {"copy", "bytes", op.bytes}; }
OpLabel label(const kernels::PackArgs& op) { return {"pack", "bytes", op.target.bytes()}; }
OpLabel label(const kernels::EmbedArgs& op) { return {"embed", kRows, op.rows}; }
OpLabel label(const kernels::RmsNormArgs& op) { return {"rms_norm", kRows, op.rows}; }
OpLabel label(const kernels::GemmArgs& op) { return {"gemm", kRows, op.rows}; }
OpLabel label(const kernels::RopeTableArgs& op) { return {"rope_table", kRows, op.rows}; }
OpLabel label(const kernels::RopeWriteArgs& op) { return {"rope_write", kRows, op.rows}; }
OpLabel label(const AttentionOp& op) { return {"attention", "slices", op.args.slice_count}; }
OpLabel label(const kernels::RowGatherArgs& op) { return {"row_gather", kRows, op.count}; }
OpLabel label(const kernels::SampleArgs& op) { return {"sample", kRows, op.row_count}; }
OpLabel label(const kernels::RopeRouteArgs& op) { return {"rope_route", kRows, op.rows}; }
OpLabel label(const kernels::TailGatherArgs& op) { return {"tail_gather", kRows, op.rows}; }

}  // namespace

OpLabel label_of(const Op& op) {
  return std::visit([](const auto& one) { return label(one); }, op);
}

}  // namespace tandem::device
