#include "kernels/rope_table.h"

#include <cmath>

namespace tandem::kernels {

void rope_table(const RopeTableArgs& args, int64_t row_begin, int64_t row_end) {
  const double factor = args.attention_factor;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const double position = args.positions[row];
    for (int64_t i = 0; i < args.half_dim; ++i) {
      const double angle = position * args.inverse_frequency[i];
      args.cos[row * args.half_dim + i] = static_cast<float>(std::cos(angle) * factor);
      args.sin[row * args.half_dim + i] = static_cast<float>(std::sin(angle) * factor);
    }
  }
}

}  // namespace tandem::kernels
