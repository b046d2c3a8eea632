// The part of cuBLASLt that src/device/cuda uses, played by the host, after NVIDIA's documentation
// of cuBLAS 13. A library by itself, opened at run time like the real library. It refuses calls
// that the documentation forbids or that only a careless caller makes: unknown attributes and
// sizes, types that do not go together, matrices that do not fit, columns that overlap, a bias of
// another type, addresses less aligned than was promised when the algorithm was asked for, an
// algorithm of another product, a workspace that is too small or not aligned.
//
// So that mistakes show in results, too: it writes over the workspace that an algorithm has asked
// for, and different algorithms sum in a different order.
//
// It advises several algorithms. Tests slow down or break some of them, by their number.
//
// CUBLASLT_ON_HOST_REPORT names a file that gets, at the end of the process, a line of JSON with
// the number of products and the reasons of refusals.
#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/element_type.h"
#include "device/cuda/cublaslt_api.h"

namespace tandem::device::cuda::lt {

struct Context {
  int unused = 0;
};
struct MatmulDesc {
  int32_t transpose_a = 0;
  int32_t transpose_b = 0;
  uint32_t epilogue = kPlainEpilogue;
  const void* bias = nullptr;
  int32_t bias_type = -1;  // by default that of D
};
struct MatrixLayout {
  DataType type;
  uint64_t rows;
  uint64_t columns;
  int64_t ld;
};
struct MatmulPreference {
  uint64_t workspace_bytes = 0;
  uint32_t reductions = 7;
  uint32_t alignments[4] = {256, 256, 256, 256};  // of A, B, C, D
};

namespace {

constexpr uint64_t kSmallColumns = 64;  // products with no more columns of D use a workspace
constexpr size_t kSmallWorkspace = size_t{1} << 20;
constexpr size_t kWorkspaceAlignment = 256;
constexpr int kAlgorithms = 4;

// Written at the end.
struct Report {
  ~Report() {
    const char* file = std::getenv("CUBLASLT_ON_HOST_REPORT");  // NOLINT(concurrency-mt-unsafe)
    std::FILE* out = file == nullptr ? nullptr : std::fopen(file, "w");
    if (out == nullptr) {
      return;
    }
    std::fprintf(out, "{\"products\": %lld, \"refused\": [", static_cast<long long>(products));
    const char* comma = "";
    for (const std::string& reason : refused) {
      std::fprintf(out, "%s\"%s\"", comma, reason.c_str());
      comma = ", ";
    }
    std::fprintf(out, "]}\n");
    std::fclose(out);
  }
  std::atomic<int64_t> products{0};
  std::mutex mutex;
  std::set<std::string> refused;  // guarded by mutex
};
Report g_report;
std::atomic<int> g_delays[kAlgorithms] = {};   // us for each product
std::atomic<bool> g_broken[kAlgorithms] = {};  // checked, but not run
std::atomic<int> g_advised{kAlgorithms};
Context g_context;

Status refuse(Status status, const char* why) {
  const std::lock_guard lock(g_report.mutex);
  g_report.refused.insert(why);
  return status;
}

template <class Value>
Status take(Value& target, const void* value, size_t bytes) {
  if (value == nullptr || bytes != sizeof(Value)) {
    return refuse(Status::kInvalidValue, "an attribute of another size");
  }
  std::memcpy(&target, value, sizeof(Value));
  return Status::kSuccess;
}

// The product that an algorithm was chosen for; its bytes are Algorithm::data.
struct Chosen {
  uint64_t rows;  // of D
  uint64_t depth;
  int64_t strides[3];  // of A, B, D
  uint8_t types[3];
  uint8_t transposed[2];
  uint8_t biased;
  uint8_t halves;  // the depth is split in two
  uint8_t steps;   // log2 of how many numbers are summed before the sum is
  uint8_t number;  // of the algorithm
  uint16_t alignments[4];
};
static_assert(sizeof(Chosen) <= sizeof(Algorithm), "an algorithm holds its product");

uint64_t op_rows(const MatrixLayout& m, int32_t transposed) {
  return transposed != 0 ? m.columns : m.rows;
}
uint64_t op_columns(const MatrixLayout& m, int32_t transposed) {
  return transposed != 0 ? m.rows : m.columns;
}

struct Operands {
  const MatmulDesc* desc;
  const MatrixLayout* a;
  const MatrixLayout* b;
  const MatrixLayout* c;
  const MatrixLayout* d;
};

Status examine_types(const Operands& on) {
  const bool narrow = on.a->type == DataType::kBF16;
  if (on.a->type != on.b->type || on.c->type != on.d->type ||
      (!narrow && on.d->type != DataType::kF32)) {
    return refuse(Status::kNotSupported, "types that do not go together");
  }
  if (on.desc->epilogue == kBiasEpilogue) {
    if (on.desc->bias == nullptr) {
      return refuse(Status::kInvalidValue, "a bias without an address");
    }
    const int32_t type =
        on.desc->bias_type < 0 ? static_cast<int32_t>(on.d->type) : on.desc->bias_type;
    if (type != static_cast<int32_t>(on.d->type)) {
      return refuse(Status::kNotSupported, "a bias of another type than D");
    }
  } else if (on.desc->epilogue != kPlainEpilogue) {
    return refuse(Status::kNotSupported, "an epilogue that is not played");
  }
  return Status::kSuccess;
}

Status examine(const Operands& on) {
  for (const void* each : {static_cast<const void*>(on.desc), static_cast<const void*>(on.a),
                           static_cast<const void*>(on.b), static_cast<const void*>(on.c),
                           static_cast<const void*>(on.d)}) {
    if (each == nullptr) {
      return refuse(Status::kInvalidValue, "a descriptor is missing");
    }
  }
  for (const MatrixLayout* m : {on.a, on.b, on.c, on.d}) {
    if (m->rows == 0 || m->columns == 0 || m->ld < static_cast<int64_t>(m->rows)) {
      return refuse(Status::kInvalidValue, "columns that overlap, or none");
    }
  }
  const MatmulDesc& desc = *on.desc;
  if (op_columns(*on.a, desc.transpose_a) != op_rows(*on.b, desc.transpose_b) ||
      op_rows(*on.a, desc.transpose_a) != on.d->rows ||
      op_columns(*on.b, desc.transpose_b) != on.d->columns || on.c->rows != on.d->rows ||
      on.c->columns != on.d->columns) {
    return refuse(Status::kInvalidValue, "matrices that do not fit");
  }
  return examine_types(on);
}

Chosen shape_of(const Operands& on) {
  Chosen chosen;
  std::memset(static_cast<void*>(&chosen), 0, sizeof(chosen));
  chosen.rows = on.d->rows;
  chosen.depth = op_columns(*on.a, on.desc->transpose_a);
  chosen.strides[0] = on.a->ld;
  chosen.strides[1] = on.b->ld;
  chosen.strides[2] = on.d->ld;
  chosen.types[0] = static_cast<uint8_t>(on.a->type);
  chosen.types[1] = static_cast<uint8_t>(on.b->type);
  chosen.types[2] = static_cast<uint8_t>(on.d->type);
  chosen.transposed[0] = on.desc->transpose_a != 0 ? 1 : 0;
  chosen.transposed[1] = on.desc->transpose_b != 0 ? 1 : 0;
  chosen.biased = on.desc->epilogue == kBiasEpilogue ? 1 : 0;
  return chosen;
}

size_t workspace_of(const Operands& on) {
  return on.d->columns <= kSmallColumns ? kSmallWorkspace : 0;
}

// The algorithm, if it may be used with these operands.
Status read(const Algorithm* algorithm, const Operands& on, Chosen& chosen) {
  if (algorithm == nullptr) {
    return refuse(Status::kInvalidValue, "no algorithm");
  }
  std::memcpy(&chosen, algorithm->data, sizeof(chosen));
  Chosen shape = shape_of(on);
  shape.halves = chosen.halves;
  shape.steps = chosen.steps;
  shape.number = chosen.number;
  std::memcpy(shape.alignments, chosen.alignments, sizeof(shape.alignments));
  if (chosen.steps == 0 || chosen.number >= kAlgorithms ||
      std::memcmp(&shape, &chosen, sizeof(shape)) != 0) {
    return refuse(Status::kNotSupported, "an algorithm of another product");
  }
  return Status::kSuccess;
}

struct Job {
  MatmulDesc desc;
  MatrixLayout a;
  MatrixLayout b;
  MatrixLayout c;
  MatrixLayout d;
  Chosen chosen;
  float alpha;
  float beta;
  const void* a_data;
  const void* b_data;
  const void* c_data;
  void* d_data;
};

float element(const void* data, const MatrixLayout& m, uint64_t row, uint64_t column) {
  const uint64_t i = row + column * static_cast<uint64_t>(m.ld);
  return m.type == DataType::kF32 ? static_cast<const float*>(data)[i]
                                  : bf16_to_f32(static_cast<const BFloat16*>(data)[i]);
}
float op_element(const void* data, const MatrixLayout& m, bool transposed, uint64_t row,
                 uint64_t column) {
  return transposed ? element(data, m, column, row) : element(data, m, row, column);
}

float sum(const Job& job, uint64_t row, uint64_t column, uint64_t begin, uint64_t end) {
  const uint64_t step = uint64_t{1} << job.chosen.steps;
  float total = 0;
  for (uint64_t k = begin; k < end; k += step) {
    float part = 0;
    for (uint64_t i = k; i < std::min(k + step, end); ++i) {
      part += op_element(job.a_data, job.a, job.chosen.transposed[0] != 0, row, i) *
              op_element(job.b_data, job.b, job.chosen.transposed[1] != 0, i, column);
    }
    total += part;
  }
  return total;
}

void compute(const Job& job) {
  const uint64_t depth = job.chosen.depth;
  const uint64_t half = job.chosen.halves != 0 ? depth / 2 : depth;
  for (uint64_t column = 0; column < job.d.columns; ++column) {
    for (uint64_t row = 0; row < job.d.rows; ++row) {
      float value =
          job.alpha * (sum(job, row, column, 0, half) + sum(job, row, column, half, depth));
      if (job.beta != 0) {  // C is not read otherwise
        value += job.beta * element(job.c_data, job.c, row, column);
      }
      if (job.chosen.biased != 0) {
        value += job.d.type == DataType::kF32
                     ? static_cast<const float*>(job.desc.bias)[row]
                     : bf16_to_f32(static_cast<const BFloat16*>(job.desc.bias)[row]);
      }
      const uint64_t i = row + column * static_cast<uint64_t>(job.d.ld);
      if (job.d.type == DataType::kF32) {
        static_cast<float*>(job.d_data)[i] = value;
      } else {
        static_cast<BFloat16*>(job.d_data)[i] = f32_to_bf16(value);
      }
    }
  }
}

bool aligned(const void* address, size_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

}  // namespace

extern "C" {

Status cublasLtCreate(Handle* handle) {
  *handle = &g_context;
  return Status::kSuccess;
}
Status cublasLtDestroy(Handle handle) {
  return handle == &g_context ? Status::kSuccess : refuse(Status::kNotInitialized, "no handle");
}
size_t cublasLtGetVersion() { return 130002; }

Status cublasLtMatmulDescCreate(Desc* desc, ComputeType compute_type, DataType scale) {
  if (compute_type != ComputeType::kF32 || scale != DataType::kF32) {
    return refuse(Status::kNotSupported, "another type of sums");
  }
  *desc = new MatmulDesc;
  return Status::kSuccess;
}
Status cublasLtMatmulDescDestroy(Desc desc) {
  delete desc;
  return Status::kSuccess;
}
Status cublasLtMatmulDescSetAttribute(Desc desc, DescAttribute attribute, const void* value,
                                      size_t bytes) {
  switch (attribute) {
    case DescAttribute::kTransposeA:
      return take(desc->transpose_a, value, bytes);
    case DescAttribute::kTransposeB:
      return take(desc->transpose_b, value, bytes);
    case DescAttribute::kEpilogue:
      return take(desc->epilogue, value, bytes);
    case DescAttribute::kBiasPointer:
      return take(desc->bias, value, bytes);
    case DescAttribute::kBiasType:
      return take(desc->bias_type, value, bytes);
  }
  return refuse(Status::kInvalidValue, "an unknown attribute");
}

Status cublasLtMatrixLayoutCreate(Layout* layout, DataType type, uint64_t rows, uint64_t columns,
                                  int64_t ld) {
  if (type != DataType::kF32 && type != DataType::kBF16) {
    return refuse(Status::kInvalidValue, "an unknown type");
  }
  *layout = new MatrixLayout{type, rows, columns, ld};
  return Status::kSuccess;
}
Status cublasLtMatrixLayoutDestroy(Layout layout) {
  delete layout;
  return Status::kSuccess;
}
Status cublasLtMatrixLayoutSetAttribute(Layout layout, LayoutAttribute attribute, const void* value,
                                        size_t bytes) {
  return attribute == LayoutAttribute::kColumns
             ? take(layout->columns, value, bytes)
             : refuse(Status::kInvalidValue, "an unknown attribute");
}

Status cublasLtMatmulPreferenceCreate(Preference* preference) {
  *preference = new MatmulPreference;
  return Status::kSuccess;
}
Status cublasLtMatmulPreferenceDestroy(Preference preference) {
  delete preference;
  return Status::kSuccess;
}
Status cublasLtMatmulPreferenceSetAttribute(Preference preference, PreferenceAttribute attribute,
                                            const void* value, size_t bytes) {
  switch (attribute) {
    case PreferenceAttribute::kMaxWorkspaceBytes:
      return take(preference->workspace_bytes, value, bytes);
    case PreferenceAttribute::kReductionMask:
      return take(preference->reductions, value, bytes);
    case PreferenceAttribute::kAlignmentA:
      return take(preference->alignments[0], value, bytes);
    case PreferenceAttribute::kAlignmentB:
      return take(preference->alignments[1], value, bytes);
    case PreferenceAttribute::kAlignmentC:
      return take(preference->alignments[2], value, bytes);
    case PreferenceAttribute::kAlignmentD:
      return take(preference->alignments[3], value, bytes);
  }
  return refuse(Status::kInvalidValue, "an unknown attribute");
}

Status cublasLtMatmulAlgoGetHeuristic(Handle handle, Desc desc, Layout a, Layout b, Layout c,
                                      Layout d, Preference preference, int wanted,
                                      Candidate candidates[], int* found) {
  if (handle == nullptr) {
    return refuse(Status::kNotInitialized, "no handle");
  }
  if (wanted < 1 || candidates == nullptr || found == nullptr || preference == nullptr) {
    return refuse(Status::kInvalidValue, "no room for an algorithm");
  }
  *found = 0;
  const Operands on{desc, a, b, c, d};
  if (const Status status = examine(on); status != Status::kSuccess) {
    return status;
  }
  if (workspace_of(on) > preference->workspace_bytes) {
    return refuse(Status::kNotSupported, "no algorithm with so small a workspace");
  }
  Chosen chosen = shape_of(on);
  const bool small = d->columns <= kSmallColumns;
  chosen.halves = small && preference->reductions != 0 ? 1 : 0;
  for (size_t i = 0; i < 4; ++i) {
    chosen.alignments[i] = static_cast<uint16_t>(preference->alignments[i]);
  }
  *found = std::min(wanted, g_advised.load());
  for (int i = 0; i < *found; ++i) {
    chosen.number = static_cast<uint8_t>(i);
    chosen.steps = static_cast<uint8_t>(3 + (std::bit_width(d->columns) + i) % 4);
    candidates[i] = {};
    std::memcpy(candidates[i].algorithm.data, &chosen, sizeof(chosen));
    candidates[i].workspace_bytes = workspace_of(on);
    candidates[i].state = Status::kSuccess;
  }
  return Status::kSuccess;
}

Status cublasLtMatmulAlgoCheck(Handle handle, Desc desc, Layout a, Layout b, Layout c, Layout d,
                               const Algorithm* algorithm, Candidate* result) {
  if (handle == nullptr) {
    return refuse(Status::kNotInitialized, "no handle");
  }
  const Operands on{desc, a, b, c, d};
  Chosen chosen;
  Status status = examine(on);
  if (status == Status::kSuccess) {
    status = read(algorithm, on, chosen);
  }
  if (status == Status::kSuccess) {
    result->workspace_bytes = workspace_of(on);
    result->state = Status::kSuccess;
  }
  return status;
}

Status cublasLtMatmul(Handle handle, Desc desc, const void* alpha, const void* a, Layout a_layout,
                      const void* b, Layout b_layout, const void* beta, const void* c,
                      Layout c_layout, void* d, Layout d_layout, const Algorithm* algorithm,
                      void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr) {
    return refuse(Status::kNotInitialized, "no handle");
  }
  const Operands on{desc, a_layout, b_layout, c_layout, d_layout};
  Job job = {};
  Status status = examine(on);
  if (status == Status::kSuccess) {
    status = read(algorithm, on, job.chosen);
  }
  if (status != Status::kSuccess) {
    return status;
  }
  if (g_broken[job.chosen.number].load()) {
    return Status::kNotSupported;
  }
  const size_t needed = workspace_of(on);
  if (needed > workspace_bytes || (needed > 0 && !aligned(workspace, kWorkspaceAlignment))) {
    return refuse(Status::kInvalidValue, "a workspace that is too small or not aligned");
  }
  const void* const data[] = {a, b, c, d};
  for (size_t i = 0; i < 4; ++i) {
    if (data[i] == nullptr || !aligned(data[i], job.chosen.alignments[i])) {
      return refuse(Status::kInvalidValue, "an address less aligned than was promised");
    }
  }
  if (c == d && (c_layout->ld != d_layout->ld || c_layout->type != d_layout->type)) {
    return refuse(Status::kInvalidValue, "C and D in one place with different layouts");
  }
  job.desc = *desc;
  job.a = *a_layout;
  job.b = *b_layout;
  job.c = *c_layout;
  job.d = *d_layout;
  job.alpha = *static_cast<const float*>(alpha);
  job.beta = *static_cast<const float*>(beta);
  job.a_data = a;
  job.b_data = b;
  job.c_data = c;
  job.d_data = d;
  ++g_report.products;
  const int delay = g_delays[job.chosen.number].load();
  stream->push([job, workspace, needed, delay] {
    if (delay > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(delay));
    }
    std::memset(workspace, 0xa5, needed);
    compute(job);
  });
  return Status::kSuccess;
}

// For tests in the same process.
void cublaslt_on_host_delay(int algorithm, int us) { g_delays[algorithm].store(us); }
void cublaslt_on_host_break(int algorithm, int broken) { g_broken[algorithm].store(broken != 0); }
void cublaslt_on_host_advise(int count) { g_advised.store(count); }
int64_t cublaslt_on_host_products() { return g_report.products; }
int64_t cublaslt_on_host_refusals() {
  const std::lock_guard lock(g_report.mutex);
  return static_cast<int64_t>(g_report.refused.size());
}

}  // extern "C"

}  // namespace tandem::device::cuda::lt
