#include "exec/visitor_layout.h"

#include <iterator>

namespace tandem {

int64_t visitor_bytes(int64_t visits) { return 5 * section_bytes<int32_t>(visits); }

VisitorWriter::VisitorWriter(int64_t visits, SectionCarver carver)
    : ids_(carver.take<int32_t>(visits)),
      positions_(carver.take<int32_t>(visits)),
      return_rows_(carver.take<int32_t>(visits)),
      ring_rows_(carver.take<int32_t>(visits)),
      slots_(carver.take<int32_t>(visits)) {}

TailRows VisitorWriter::add_stage(std::span<const piggyback::Visit> visits) {
  const TailRows rows{.rows = static_cast<int32_t>(visits.size()),
                      .ids = ids_.device_end(),
                      .positions = positions_.device_end(),
                      .return_rows = return_rows_.device_end(),
                      .ring_rows = ring_rows_.device_end(),
                      .slots = slots_.device_end()};
  const int64_t count = std::ssize(visits);
  int32_t* ids = ids_.add_room(count);
  int32_t* positions = positions_.add_room(count);
  int32_t* return_rows = return_rows_.add_room(count);
  int32_t* ring_rows = ring_rows_.add_room(count);
  int32_t* slots = slots_.add_room(count);
  for (const piggyback::Visit& visit : visits) {
    *ids++ = visit.token;
    *positions++ = visit.position;
    *return_rows++ = visit.return_row;
    *ring_rows++ = visit.ring_row;
    *slots++ = visit.hop.slot;
  }
  return rows;
}

}  // namespace tandem
