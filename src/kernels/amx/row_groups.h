// The rows of a matrix product in groups of a tile's rows, for the kernels of this folder.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/amx/tiles.h"
#include "kernels/gemm.h"

namespace tandem::kernels::amx {

inline constexpr int64_t kGroupRows = kTileRows;
inline constexpr int64_t kGroupSums = kGroupRows * kPanelColumns;  // floats: a group with a panel

// The first row of a group: the last group ends with the last row, so it may overlap its neighbour.
inline int64_t group_row(const GemmArgs& args, int64_t group) {
  return std::max<int64_t>(0, std::min(group * kGroupRows, args.rows - kGroupRows));
}

}  // namespace tandem::kernels::amx
