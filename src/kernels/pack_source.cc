#include "kernels/pack_source.h"

namespace tandem::kernels {

const QuantizedGroup* source_group(const PackArgs& args, int64_t n, int64_t k,
                                   QuantizedGroup& room) {
  if (args.source_quantization == Quantization::kNone || args.k.group % kQuantizedGroup != 0) {
    return nullptr;
  }
  const int64_t row = logical_index(args.n, n);
  const int64_t depth = logical_index(args.k, k);
  if (row < 0 || depth < 0) {
    room = {};
    return &room;
  }
  const QuantizedGroup& group = static_cast<const QuantizedGroup*>(
      args.source)[(row * args.k.logical + depth) / kQuantizedGroup];
  if (args.source_quantization == args.target.quantization) {
    return &group;
  }
  room = convert_group(group, args.source_quantization, args.target.quantization);
  return &room;
}

}  // namespace tandem::kernels
