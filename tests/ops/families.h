// The families that the tests of kernels run: those of instruction sets, of which a machine has
// some, and the CUDA back end's kernels run by the host.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "cuda_kernels.h"
#include "machine.h"

namespace tandem::kernels {

struct Family {
  std::string name;
  std::optional<Isa> isa = {};  // absent: the CUDA back end's
};

inline void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

// All that there are; a test reports as skipped what this machine cannot run.
inline std::vector<Family> known_families() {
  std::vector<Family> families;
  for (const Isa isa : known_isas()) {
    families.push_back({std::string(isa_name(isa)), isa});
  }
  families.push_back({"cuda"});
  return families;
}

// Plain loops, which cut no depth, panels or rows: a single large shape is enough for these.
inline bool is_plain(const Family& family) { return !family.isa || *family.isa == Isa::kRef; }

inline bool can_run(const Family& family) { return !family.isa || can_run(*family.isa); }

inline const Kernels& table_of(const Family& family) {
  return family.isa ? table_of(*family.isa) : cuda_kernels();
}

}  // namespace tandem::kernels
