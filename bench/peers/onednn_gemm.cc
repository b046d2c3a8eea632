// oneDNN's bf16 matrix product on the shapes of a 1.1B Llama, beside which `tandem bench kernels`
// is read. Prints JSON.
//
// Y[m, n] = X[m, k] * W[n, k]^T with bf16 X, W and Y; W in the layout that oneDNN chooses for this
// m. Random data; W rotates over copies that together exceed the caches. Threads: as
// OMP_NUM_THREADS says. Usage: OMP_NUM_THREADS=2 onednn_gemm [M]...   (default: 1 4 8 16 32 64 128
// 256 512)
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dnnl.hpp>
#include <random>
#include <string_view>
#include <vector>

namespace {

using Desc = dnnl::memory::desc;
using Format = dnnl::memory::format_tag;
constexpr auto kBf16 = dnnl::memory::data_type::bf16;
constexpr int64_t kRotatedBytes = int64_t{512} << 20;
constexpr int kRounds = 7;

struct Shape {
  const char* name;
  int64_t n;
  int64_t k;
};
constexpr Shape kShapes[] = {{"qkv", 2560, 2048},
                             {"out", 2048, 2048},
                             {"gate_up", 11264, 2048},
                             {"down", 2048, 5632},
                             {"lm_head", 32000, 2048}};

struct Timing {
  double median_us;
  double least_us;
  double most_us;
};

void fill_random(const dnnl::memory& memory, std::mt19937& random) {
  std::uniform_real_distribution<float> values(-1.0F, 1.0F);
  auto* out = static_cast<uint16_t*>(memory.get_data_handle());
  const size_t count = memory.get_desc().get_size() / sizeof(uint16_t);
  // A drawn megabyte, repeated: drawing everything would take longer than the measurement.
  const size_t drawn = std::min<size_t>(count, size_t{1} << 19);
  for (size_t i = 0; i < drawn; ++i) {
    const float value = values(random);
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    out[i] = static_cast<uint16_t>(bits >> 16);
  }
  for (size_t i = drawn; i < count; i += drawn) {
    std::copy_n(out, std::min(drawn, count - i), out + i);
  }
}

Timing measure(const dnnl::engine& engine, const Shape& shape, int64_t m) {
  std::mt19937 random(1);
  dnnl::stream stream(engine);
  const Desc x_desc({m, shape.k}, kBf16, Format::ab);
  const Desc w_desc({shape.n, shape.k}, kBf16, Format::any);
  const Desc y_desc({m, shape.n}, kBf16, Format::ab);
  const dnnl::inner_product_forward::primitive_desc chosen(
      {dnnl::prop_kind::forward_inference, x_desc, w_desc, y_desc}, engine);
  const dnnl::inner_product_forward product(chosen);

  const dnnl::memory x(x_desc, engine);
  const dnnl::memory y(y_desc, engine);
  fill_random(x, random);
  const int64_t copies = std::max<int64_t>(2, kRotatedBytes / (shape.n * shape.k * 2));
  std::vector<dnnl::memory> weights;
  for (int64_t i = 0; i < copies; ++i) {
    weights.emplace_back(chosen.weights_desc(), engine);
    fill_random(weights.back(), random);
  }

  std::vector<double> times_us;
  for (int round = -1; round < kRounds; ++round) {  // the first round warms up
    const auto start = std::chrono::steady_clock::now();
    for (const dnnl::memory& w : weights) {
      product.execute(stream, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, y}});
    }
    stream.wait();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    if (round >= 0) {
      times_us.push_back(took.count() / static_cast<double>(copies));
    }
  }
  std::sort(times_us.begin(), times_us.end());
  return {times_us[times_us.size() / 2], times_us.front(), times_us.back()};
}

std::vector<int64_t> parse_rows(int argc, char** argv) {
  std::vector<int64_t> rows;
  for (int i = 1; i < argc; ++i) {
    const std::string_view text = argv[i];
    int64_t m = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), m);
    if (error != std::errc{} || end != text.data() + text.size() || m < 1 || m > 65536) {
      fmt::print(stderr, "onednn_gemm: '{}' is no row count (1 to 65536)\n", text);
      std::exit(2);
    }
    rows.push_back(m);
  }
  return rows.empty() ? std::vector<int64_t>{1, 4, 8, 16, 32, 64, 128, 256, 512} : rows;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<int64_t> rows = parse_rows(argc, argv);
  const dnnl_version_t* version = dnnl_version();
  const char* threads = std::getenv("OMP_NUM_THREADS");
  fmt::print(
      "{{\"program\": \"onednn_gemm\", \"version\": \"{}.{}.{}\", \"threads\": \"{}\", "
      "\"element_type\": \"bfloat16\",\n",
      version->major, version->minor, version->patch, threads != nullptr ? threads : "all");
  fmt::print(" \"rounds\": {}, \"results\": [", kRounds);
  const char* separator = "\n";
  try {
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    for (const Shape& shape : kShapes) {
      for (const int64_t m : rows) {
        const Timing time = measure(engine, shape, m);
        const auto weight_bytes = static_cast<double>(shape.n * shape.k * 2);
        const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(shape.n) *
                             static_cast<double>(shape.k);
        fmt::print(
            "{}  {{\"shape\": \"{}\", \"m\": {}, \"n\": {}, \"k\": {}, \"median_us\": {:.1f}, "
            "\"least_us\": {:.1f}, "
            "\"most_us\": {:.1f}, \"weight_gb_per_s\": {:.2f}, \"gflops\": {:.1f}}}",
            separator, shape.name, m, shape.n, shape.k, time.median_us, time.least_us, time.most_us,
            weight_bytes / time.median_us * 1e-3, flops / time.median_us * 1e-3);
        std::fflush(stdout);
        separator = ",\n";
      }
    }
  } catch (const dnnl::error& error) {
    fmt::print(stderr, "onednn_gemm: {}\n", error.what());
    return 1;
  }
  fmt::print("\n]}}\n");
  return 0;
}
