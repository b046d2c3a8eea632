// Files of `tandem profile --op-times`.
#include "fuzz/fuzz.h"
#include "sim/op_measures.h"

namespace tandem::fuzz {

TANDEM_FUZZ_TARGET(input) {
  static const MemoryFile file;
  file.write(input);
  const Result<sim::MeasuredOps> measured = sim::read_measured_ops(file.path());
  if (!measured.ok()) {
    CHECK(!measured.error().message.empty());
    return;
  }
  // Whatever is taken gives times, of any amount.
  for (const device::OpLine& line : measured->table->lines) {
    for (const int64_t amount : {int64_t{0}, int64_t{1}, line.points.back().amount + 1}) {
      CHECK(line.nanos(amount) >= 0);
    }
  }
}

}  // namespace tandem::fuzz
