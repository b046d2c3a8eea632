#include "device/cpu/kernel_choice.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "device/cpu/machine.h"
#include "device/cpu/pages.h"
#include "device/cpu/worker_pool.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tandem::device {
namespace {

using kernels::Isa;
using kernels::kMeasuredRows;
using kernels::ProductTimes;

constexpr int kPasses = 5;
// Of weights for each thread in a pass: a millisecond or so of reading, or of multiplying.
constexpr int64_t kReadBytes = int64_t{8} << 20;
constexpr int64_t kMultipliedBytes = int64_t{64} << 20;  // divided by the rows
constexpr int64_t kMostBytes = int64_t{256} << 20;       // of all threads
constexpr int64_t kLeastWeightBytes = int64_t{64} << 20;
constexpr int64_t kFlushBytes = int64_t{256} << 10;
constexpr int64_t kChunksPerThread = 4;

#if defined(__x86_64__)
bool has_clflushopt() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & (1U << 23)) != 0;
}

// Out of all caches, however large: a model is read from memory.
void evict(std::byte* data, int64_t bytes) {
  static const bool kUnordered = has_clflushopt();
  for (int64_t i = 0; i < bytes; i += 64) {
    if (kUnordered) {
      asm volatile("clflushopt %0" : "+m"(data[i]));
    } else {
      asm volatile("clflush %0" : "+m"(data[i]));
    }
  }
  asm volatile("sfence" ::: "memory");
}
#else
void evict(std::byte*, int64_t) {}
#endif

class Measurement {
 public:
  Measurement(const ProductShape& shape, WorkerPool& pool)
      : pool_(pool),
        desk_(pool.open_desk()),
        depth_(kernels::round_up(shape.k, 32)),
        quantization_(shape.quantization),
        activations_(shape.activations) {
    const int64_t threads = pool.threads();
    const int64_t room = std::min(kReadBytes, kMostBytes / threads);
    const int64_t all = std::max<int64_t>(kernels::divide_up(shape.n, kernels::kPanelColumns), 1);
    for (size_t i = 0; i < kMeasuredRows.size(); ++i) {
      const int64_t bytes = std::min(room, kMultipliedBytes / kMeasuredRows.at(i));
      panels_.at(i) = std::max<int64_t>(bytes / panel_bytes(), 1) * threads;
      // A model's own matrices may be smaller, but there are many of them to read.
      panels_.at(i) = std::max(panels_.at(i), std::min(all, threads));
      most_results_ =
          std::max(most_results_, panels_.at(i) * kernels::kPanelColumns * kMeasuredRows.at(i));
    }
  }

  [[nodiscard]] int64_t bytes() const {
    return weight_bytes() + x_bytes() + most_results_ * int64_t{sizeof(float)};
  }

  // False: there is no memory for it.
  bool prepare() {
    auto weights = Pages::map(weight_bytes());
    auto x = Pages::map(x_bytes());
    auto y = Pages::map(most_results_ * int64_t{sizeof(float)});
    if (!weights || !x || !y) {
      return false;
    }
    weights_ = std::move(*weights);
    x_ = std::move(*x);
    y_ = std::move(*y);
    fill(weights_.data(), weight_bytes());
    fill(x_.data(), x_bytes());
    return true;
  }

  double seconds(const kernels::Kernels& family, size_t i) {
    kernels::GemmArgs args{.x = x_.data(),
                           .x_stride = stride(),
                           .rows = kMeasuredRows.at(i),
                           .w = matrix(panels_.at(i)),
                           .y = reinterpret_cast<float*>(y_.data()),
                           .y_stride = panels_.at(i) * kernels::kPanelColumns};
    const int64_t shared = family.prepared_bytes(args);
    void* prepared = prepared_.require(shared);
    in_pieces(panels_.at(i) * panel_bytes(),
              [this](int64_t begin, int64_t end) { evict(weights_.data() + begin, end - begin); });
    struct Context {
      const kernels::Kernels& family;
      const kernels::GemmArgs& args;
      int64_t chunks;
    };
    const Context context{family, args,
                          std::min(panels_.at(i), pool_.threads() * kChunksPerThread)};
    const auto run = [](const void* raw, int64_t chunk, void* scratch) {
      const auto& own = *static_cast<const Context*>(raw);
      const int64_t panels = own.args.w.panels();
      own.family.gemm(own.args, chunk * panels / own.chunks, (chunk + 1) * panels / own.chunks,
                      scratch);
    };
    const SteadyClock clock;
    const Nanos began = clock.now();
    if (shared > 0) {
      prepare_rows(family, args, prepared);
      args.prepared = prepared;
    }
    pool_.run(desk_,
              {.run = run,
               .context = &context,
               .chunks = context.chunks,
               .scratch_bytes = family.gemm_scratch_bytes(args)},
              scratch_);
    return std::max(to_seconds(clock.now() - began), 1e-9);
  }

 private:
  void prepare_rows(const kernels::Kernels& family, const kernels::GemmArgs& args, void* to) {
    struct Context {
      const kernels::Kernels& family;
      const kernels::GemmArgs& args;
      void* to;
      int64_t chunks;
    };
    const Context context{family, args, to, std::min<int64_t>(args.rows, pool_.threads())};
    const auto run = [](const void* raw, int64_t chunk, void*) {
      const auto& own = *static_cast<const Context*>(raw);
      const int64_t rows = own.args.rows;
      own.family.prepare(own.args, chunk * rows / own.chunks, (chunk + 1) * rows / own.chunks,
                         own.to);
    };
    pool_.run(desk_, {.run = run, .context = &context, .chunks = context.chunks}, scratch_);
  }

  [[nodiscard]] kernels::PackedMatrix matrix(int64_t panels) const {
    return {.data = weights_.data(),
            .n = panels * kernels::kPanelColumns,
            .k = depth_,
            .quantization = quantization_,
            .activations = activations_};
  }
  [[nodiscard]] int64_t panel_bytes() const { return matrix(1).bytes(); }
  [[nodiscard]] int64_t weight_bytes() const { return panels_.front() * panel_bytes(); }
  [[nodiscard]] int64_t stride() const {
    return kernels::spread_stride(depth_, ElementType::kBF16);
  }
  [[nodiscard]] int64_t x_bytes() const { return kMeasuredRows.back() * stride() * 2; }

  template <class Part>
  void in_pieces(int64_t bytes, const Part& part) {
    struct Context {
      const Part& part;
      int64_t bytes;
    };
    const Context context{part, bytes};
    const auto run = [](const void* raw, int64_t chunk, void*) {
      const auto& own = *static_cast<const Context*>(raw);
      own.part(chunk * kFlushBytes, std::min((chunk + 1) * kFlushBytes, own.bytes));
    };
    pool_.run(desk_,
              {.run = run, .context = &context, .chunks = kernels::divide_up(bytes, kFlushBytes)},
              scratch_);
  }

  // Numbers of usual size, also as scales: time must not depend on denormals.
  void fill(std::byte* to, int64_t bytes) {
    in_pieces(bytes, [to](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += 2) {
        const auto bits = static_cast<uint16_t>(0x3c00 | (at * 0x9e37 & 0x81ff));
        std::memcpy(to + at, &bits, sizeof(bits));
      }
    });
  }

  WorkerPool& pool_;
  const int32_t desk_;
  const int64_t depth_;
  const Quantization quantization_;
  const Activations activations_;
  std::array<int64_t, kMeasuredRows.size()> panels_ = {};
  int64_t most_results_ = 0;
  Pages weights_;
  Pages x_;
  Pages y_;
  Scratch scratch_;
  Scratch prepared_;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

bool matters(const ProductShape& shape) {
  const int64_t cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return shape.type == ElementType::kBF16 && shape.n > 0 && shape.k > 0 &&
         shape.weight_bytes > std::max(kLeastWeightBytes, cache);
}

}  // namespace

std::vector<ProductTimes> measure_products(const ProductShape& shape, std::span<const Isa> families,
                                           WorkerPool& pool) {
  Measurement measurement(shape, pool);
  constexpr int64_t kShareOfMemory = 4;
  if (measurement.bytes() > machine_memory().free_bytes / kShareOfMemory ||
      !measurement.prepare()) {
    return {};
  }
  std::vector<const kernels::Kernels*> tables;
  for (const Isa isa : families) {
    const Result<const kernels::Kernels*> table = kernels::kernels_for(isa);
    if (!table.ok()) {
      return {};
    }
    tables.push_back(*table);
  }
  std::vector<ProductTimes> times(tables.size());
  for (size_t i = 0; i < kMeasuredRows.size(); ++i) {
    std::vector<std::vector<double>> seconds(tables.size());
    for (size_t turn = 0; turn < kPasses * tables.size(); ++turn) {
      // Every pass begins with another one, so that none is always the first.
      const size_t which = (turn + turn / tables.size()) % tables.size();
      seconds[which].push_back(measurement.seconds(*tables[which], i));
    }
    for (size_t which = 0; which < tables.size(); ++which) {
      times[which].isa = tables[which]->isa;
      times[which].seconds.at(i) = median(seconds[which]);
    }
  }
  return times;
}

std::string describe_times(std::span<const ProductTimes> times) {
  std::string text = fmt::format("beside {} with", kernels::isa_name(times.back().isa));
  for (size_t i = 0; i < kMeasuredRows.size(); ++i) {
    text += fmt::format("{} {}", i == 0 ? "" : ",", kMeasuredRows.at(i));
  }
  text += " rows:";
  for (const ProductTimes& one : times.first(times.size() - 1)) {
    text += fmt::format("{} {}", &one == &times.front() ? "" : ",", kernels::isa_name(one.isa));
    for (size_t i = 0; i < kMeasuredRows.size(); ++i) {
      text += fmt::format(" {:.2f}", one.seconds.at(i) / times.back().seconds.at(i));
    }
  }
  return text;
}

KernelChoice choose_kernels(const std::optional<ProductShape>& shape, WorkerPool& pool) {
  std::vector<Isa> families = kernels::available_isas();
  const Isa last = families.back();
  const KernelChoice usual{last, {}};
  std::erase(families, Isa::kRef);
  if (!shape || !matters(*shape) || families.size() < 2) {
    return usual;
  }
  // Beside pairs of bf16 a processor also multiplies bytes: one code for all its families. AVX-512
  // alone may come without, and AVX2 be faster.
  if (shape->activations == Activations::kInt8 && last != Isa::kAvx2 && last != Isa::kAvx512) {
    return usual;
  }
  const std::vector<ProductTimes> times = measure_products(*shape, families, pool);
  if (times.empty()) {
    return usual;
  }
  const auto same = [](Isa one, Isa other) {
    const auto first = kernels::kernels_for(one);
    const auto second = kernels::kernels_for(other);
    return first.ok() && second.ok() && kernels::same_products(**first, **second);
  };
  return {kernels::choose(times, same), describe_times(times)};
}

}  // namespace tandem::device
