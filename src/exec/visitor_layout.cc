#include "exec/visitor_layout.h"

namespace tandem {

int64_t visitor_bytes(int64_t visits, const StepSize& samples) {
  return 5 * section_bytes<int32_t>(visits) + SampleRowWriter::bytes(samples);
}

VisitorWriter::VisitorWriter(int64_t visits, const StepSize& samples, SectionCarver carver)
    : ids_(carver.take<int32_t>(visits)),
      positions_(carver.take<int32_t>(visits)),
      return_rows_(carver.take<int32_t>(visits)),
      ring_rows_(carver.take<int32_t>(visits)),
      slots_(carver.take<int32_t>(visits)),
      samples_(samples, carver) {}

TailRows VisitorWriter::add_stage(std::span<const piggyback::Visit> visits) {
  const TailRows rows{.rows = static_cast<int32_t>(visits.size()),
                      .ids = ids_.device_end(),
                      .positions = positions_.device_end(),
                      .return_rows = return_rows_.device_end(),
                      .ring_rows = ring_rows_.device_end(),
                      .slots = slots_.device_end()};
  for (const piggyback::Visit& visit : visits) {
    ids_.add(visit.token);
    positions_.add(visit.position);
    return_rows_.add(visit.return_row);
    ring_rows_.add(visit.ring_row);
    slots_.add(visit.hop.slot);
  }
  return rows;
}

}  // namespace tandem
