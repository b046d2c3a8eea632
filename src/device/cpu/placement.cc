#include "device/cpu/placement.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <system_error>
#include <thread>

#include "base/affinity.h"
#include "base/check.h"
#include "base/log.h"
#include "device/cpu/pages.h"
#include "kernels/gemm.h"

namespace tandem::device {
namespace {

constexpr int64_t kMaskBits = 64;
constexpr int64_t kMostNodes = 1024;

int64_t round_down(int64_t bytes, int64_t multiple) { return bytes / multiple * multiple; }

class KernelPlacer final : public PagePlacer {
 public:
  [[nodiscard]] bool has_policy_of_its_own() const override {
    int mode = MPOL_DEFAULT;
    const long done = syscall(SYS_get_mempolicy, &mode, nullptr, 0L, nullptr, 0L);
    return done == 0 && (mode & ~MPOL_MODE_FLAGS) != MPOL_DEFAULT;
  }

  [[nodiscard]] bool prefer(std::byte* data, int64_t bytes, int32_t node) const override {
    std::array<uint64_t, kMostNodes / kMaskBits> mask{};
    if (node < 0 || node >= kMostNodes) {
      return false;
    }
    mask[static_cast<size_t>(node / kMaskBits)] = uint64_t{1} << (node % kMaskBits);
    // The kernel reads one bit less than it is told.
    return syscall(SYS_mbind, data, static_cast<unsigned long>(bytes), MPOL_PREFERRED, mask.data(),
                   kMostNodes + 1, 0L) == 0;
  }

  void touch(std::byte* data, int64_t bytes, std::span<const int32_t> cpus) const override {
    const auto touch_here = [&] {
      if (!pin_this_thread(cpus) ||
          madvise(data, static_cast<size_t>(bytes), MADV_POPULATE_WRITE) == 0) {
        return;
      }
      const int64_t page = sysconf(_SC_PAGESIZE);  // a kernel that does not know the advice
      for (int64_t at = 0; at < bytes; at += page) {
        *const_cast<volatile std::byte*>(data + at) = std::byte{0};
      }
    };
    try {
      std::thread(touch_here).join();
    } catch (const std::system_error&) {
      // No thread to be had: the pages come to whoever touches them first.
    }
  }
};

}  // namespace

const PagePlacer& kernel_placer() {
  static const KernelPlacer placer;
  return placer;
}

std::vector<PageRange> ranges_of_panels(const kernels::PackedMatrix& matrix, const Shares& shares) {
  // Panels lie one behind the other in every family's layout.
  const int64_t panel_bytes = matrix.panels() == 0 ? 0 : matrix.bytes() / matrix.panels();
  const auto base = static_cast<int64_t>(reinterpret_cast<uintptr_t>(matrix.data));
  // The last huge page of a piece may lie only partly inside it, so boundaries go down.
  const auto cut = [&](int32_t share) {
    return round_down(base + shares.begin(matrix.panels(), share) * panel_bytes, kHugePageBytes);
  };
  std::vector<PageRange> ranges;
  auto* data = static_cast<std::byte*>(const_cast<void*>(matrix.data));
  for (int32_t share = 0; share < shares.count(); ++share) {
    const int64_t begin = cut(share);
    const int64_t end = cut(share + 1);
    if (end > begin) {
      ranges.push_back({share, data + (begin - base), end - begin});
    }
  }
  return ranges;
}

std::vector<PageRange> ranges_of_spread(const SpreadMemory& memory, const Shares& shares) {
  CHECK(memory.unit_bytes > 0, "units of {} bytes", memory.unit_bytes);
  const int64_t least =
      std::max(memory.unit_bytes, (memory.bytes + kMaxStretches - 1) / kMaxStretches);
  const int64_t stretch = kernels::round_up(std::max<int64_t>(least, 1), kHugePageBytes);
  // What a mapping holds is whole pages.
  const int64_t bytes = kernels::round_up(memory.bytes, sysconf(_SC_PAGESIZE));
  std::vector<PageRange> ranges;
  for (int64_t at = 0; at < bytes; at += stretch) {
    const auto share = static_cast<int32_t>(at / stretch % shares.count());
    ranges.push_back({share, memory.data + at, std::min(stretch, bytes - at)});
  }
  return ranges;
}

Placement::Placement(std::vector<NodeShare> nodes, const PagePlacer& placer)
    : nodes_(std::move(nodes)), shares_(shares_of(nodes_)), placer_(placer) {}

bool Placement::prefer(std::span<const PageRange> ranges) {
  bool all = true;
  for (const PageRange& range : ranges) {
    const MemoryNode& node = nodes_[static_cast<size_t>(range.share)].node;
    // A node without memory of its own takes what is nearest.
    all = all && (node.memory_bytes == 0 || placer_.prefer(range.data, range.bytes, node.id));
  }
  if (!all) {
    say_refused();
  }
  return all;
}

void Placement::touch(std::span<const PageRange> ranges) const {
  for (const PageRange& range : ranges) {
    placer_.touch(range.data, range.bytes, nodes_[static_cast<size_t>(range.share)].node.cpus);
  }
}

void Placement::say_refused() {
  if (!said_refused_.exchange(true)) {
    log::warn(
        "the kernel refuses to bind memory to NUMA nodes (mbind; in containers it takes "
        "CAP_SYS_NICE): weights are placed by touching them, KV lies where it is first written");
  }
}

void Placement::place_panels(const kernels::PackedMatrix& matrix) {
  const std::vector<PageRange> ranges = ranges_of_panels(matrix, shares_);
  if (!prefer(ranges)) {
    touch(ranges);
  }
}

void Placement::spread(const SpreadMemory& memory) {
  (void)prefer(ranges_of_spread(memory, shares_));
}

std::unique_ptr<Placement> make_placement(std::vector<NodeShare> nodes, const PagePlacer& placer) {
  if (nodes.size() < 2) {
    return nullptr;
  }
  if (placer.has_policy_of_its_own()) {
    log::info(
        "this process was started with a memory policy of its own (numactl): it holds, and nothing "
        "is bound to NUMA nodes");
    return nullptr;
  }
  return std::make_unique<Placement>(std::move(nodes), placer);
}

}  // namespace tandem::device
