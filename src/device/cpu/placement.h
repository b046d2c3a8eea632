// Puts pages on memory nodes: the panels of a weight beside the threads that will be given them, KV
// over all nodes in turn. Only where there are several nodes with threads; on one node nothing here
// runs. All of it is advice: where a node is full the kernel takes the next one, and no result
// depends on it.
//
// Pages are placed before they are touched, by mbind(MPOL_PREFERRED): it costs nothing until they
// are, and holds whoever touches them. Where the kernel forbids mbind (containers without
// CAP_SYS_NICE), weights are touched at once by threads of their node, and KV lies where it is
// first written. A process that was started with a memory policy of its own (numactl) keeps it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/cpu/seats.h"
#include "kernels/gemm.h"

namespace tandem::device {

// Whole pages, or nothing, for one share.
struct PageRange {
  int32_t share = 0;
  std::byte* data = nullptr;
  int64_t bytes = 0;
  friend bool operator==(const PageRange&, const PageRange&) = default;
};

// The panels of each share, cut at multiples of a huge page, so that huge pages stay whole. Ranges
// in order, none empty: a matrix that is smaller than a huge page may have none.
std::vector<PageRange> ranges_of_panels(const kernels::PackedMatrix& matrix, const Shares& shares);

struct SpreadMemory {
  std::byte* data = nullptr;  // at the start of a huge page
  int64_t bytes = 0;
  int64_t unit_bytes = 1;  // read as a whole, as a KV block is
};

// Stretches for the shares in turn. A stretch is at least a huge page and a unit, for a block holds
// all layers: if its parts lay on different nodes, a layer would always be read from one of them.
// At most kMaxStretches, because the kernel limits how many a process may have.
std::vector<PageRange> ranges_of_spread(const SpreadMemory& memory, const Shares& shares);
inline constexpr int64_t kMaxStretches = 4096;

// What the kernel does for a placement.
class PagePlacer {
 public:
  virtual ~PagePlacer() = default;
  // The process was told where its memory should come from.
  [[nodiscard]] virtual bool has_policy_of_its_own() const = 0;
  // The pages will come from `node`; false: refused.
  [[nodiscard]] virtual bool prefer(std::byte* data, int64_t bytes, int32_t node) const = 0;
  // Touches the pages on one of these CPUs; they hold zeros before and after.
  virtual void touch(std::byte* data, int64_t bytes, std::span<const int32_t> cpus) const = 0;
};

// Lives as long as the process.
const PagePlacer& kernel_placer();

// For one device. Calls from any thread, on memory that no one has touched.
class Placement {
 public:
  Placement(std::vector<NodeShare> nodes, const PagePlacer& placer);

  void place_panels(const kernels::PackedMatrix& matrix);
  void spread(const SpreadMemory& memory);

 private:
  // False: refused, wholly or in part.
  bool prefer(std::span<const PageRange> ranges);
  void touch(std::span<const PageRange> ranges) const;
  void say_refused();

  const std::vector<NodeShare> nodes_;
  const Shares shares_;
  const PagePlacer& placer_;
  std::atomic<bool> said_refused_{false};
};

// Null where nothing is to be placed: one node, or a policy that came with the process.
std::unique_ptr<Placement> make_placement(std::vector<NodeShare> nodes, const PagePlacer& placer);

}  // namespace tandem::device
