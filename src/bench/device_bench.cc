#include "bench/device_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/units.h"
#include "bench/device_cases.h"
#include "bench/device_stand.h"
#include "bench/device_work.h"
#include "bench/measuring.h"
#include "model/make.h"

namespace tandem::bench {
namespace {

constexpr int32_t kMaxLaunches = 20000;

struct Timing {
  int32_t launches = 0;
  double seconds = 0.0;  // median time of a launch
  double fastest_seconds = 0.0;
  double slowest_seconds = 0.0;
  std::vector<TunedChoice> choices;  // the device's choices for the case's ops
};

class Timer {
 public:
  Timer(DeviceStand& stand, const DeviceBenchOptions& options)
      : stand_(stand),
        pass_seconds_(options.sizes == DeviceBenchSizes::kAll     ? 20e-3
                      : options.sizes == DeviceBenchSizes::kQuick ? 5e-3
                                                                  : 0.0),
        passes_(std::max(1, options.passes)) {}

  Result<Timing> measure(const DeviceCase& made) {
    next_ = 0;
    ASSIGN_OR_RETURN(std::vector<TunedChoice> choices, warm_up(made));
    const int32_t limit = made.max_launches > 0 ? made.max_launches : kMaxLaunches;
    int32_t launches = 1;
    double seconds = run(made, launches);
    while (seconds < pass_seconds_ && launches < limit) {
      const double wanted = 1.1 * pass_seconds_ / std::max(seconds, 1e-7) * launches;
      launches = static_cast<int32_t>(std::min({wanted + 1, 20.0 * launches, double(limit)}));
      seconds = run(made, launches);
    }
    std::vector<double> each = {seconds / launches};
    for (int32_t pass = 1; pass < passes_ && seconds < kTooLong; ++pass) {
      each.push_back(run(made, launches) / launches);
    }
    std::ranges::sort(each);
    return Timing{launches, each[each.size() / 2], each.front(), each.back(), std::move(choices)};
  }

 private:
  static constexpr double kTooLong = 0.5;  // a pass of this time is the last

  // Runs the ops, so that the device chooses how to compute them, by measuring if it can.
  Result<std::vector<TunedChoice>> warm_up(const DeviceCase& made) {
    device::Tuning* const tuning = stand_.device().tuning();
    if (tuning == nullptr) {
      run(made, 1);
      return std::vector<TunedChoice>();
    }
    tuning->begin();
    run(made, static_cast<int32_t>((made.ops.size() - 1) / static_cast<size_t>(made.together)) + 1);
    return tuning->end(std::chrono::seconds(1));
  }

  double run(const DeviceCase& made, int32_t launches) {
    device::Device& device = stand_.device();
    for (const device::Op& op : made.before) {
      device.launch(stand_.stream(), op);
    }
    device.synchronize(device.record(stand_.stream()));
    const double begin = seconds_now();
    for (int32_t i = 0; i < launches * made.together; ++i) {
      device.launch(stand_.stream(), made.ops[next_++ % made.ops.size()]);
    }
    device.synchronize(device.record(stand_.stream()));
    return seconds_now() - begin;
  }

  DeviceStand& stand_;
  const double pass_seconds_;
  const int32_t passes_;
  size_t next_ = 0;
};

nlohmann::ordered_json row_json(const DeviceCase& made, const Timing& timing,
                                const DeviceCeilings& ceilings) {
  const double ceiling = ceiling_seconds(made.work, ceilings);
  nlohmann::ordered_json row = {{"op", made.op}};
  if (!made.shape.empty()) {
    row["shape"] = made.shape;
  }
  row["rows"] = made.rows;
  if (made.context > 0) {
    row["context"] = made.context;
  }
  row.update({{"seconds", timing.seconds},
              {"fastest_seconds", timing.fastest_seconds},
              {"slowest_seconds", timing.slowest_seconds},
              {"launches", timing.launches},
              {"bytes", made.work.bytes},
              {"operations", made.work.operations},
              {"gb_per_s", made.work.bytes / timing.seconds * 1e-9},
              {"tflop_per_s", made.work.operations / timing.seconds * 1e-12}});
  for (const TunedChoice& each : timing.choices) {
    row["choices"].push_back({{"work", each.work},
                              {"choice", each.choice},
                              {"us", each.us},
                              {"usual_us", each.usual_us}});
  }
  if (ceiling > 0) {
    row["ceiling_seconds"] = ceiling;
    row["share_of_ceiling"] = ceiling / timing.seconds;
  }
  return row;
}

void print_head() {
  fmt::print("{:20} {:>6} {:>11} {:>8} {:>12} {:>22} {:>9} {:>9} {:>9}\n", "op", "shape", "rows",
             "context", "us", "fastest .. slowest", "GB/s", "TFLOP/s", "of limit");
}

// Text about ways that the device has chosen by measuring: "  way 2: 3.10 us, usual 3.40".
std::string choices_text(const std::vector<TunedChoice>& choices) {
  std::string text;
  for (const TunedChoice& each : choices) {
    fmt::format_to(std::back_inserter(text), "  way {}: {:.2f} us, usual {:.2f}", each.choice,
                   each.us, each.usual_us);
  }
  return text;
}

void print_row(const DeviceCase& made, const Timing& timing, const DeviceCeilings& ceilings) {
  const double ceiling = ceiling_seconds(made.work, ceilings);
  fmt::print(
      "{:20} {:>6} {:>11} {:>8} {:>12.2f} {:>22} {:>9.1f} {:>9.2f} {:>9}{}\n", made.op, made.shape,
      made.rows, made.context > 0 ? fmt::format("{}", made.context) : "", timing.seconds * 1e6,
      fmt::format("{:.2f} .. {:.2f}", timing.fastest_seconds * 1e6, timing.slowest_seconds * 1e6),
      made.work.bytes / timing.seconds * 1e-9, made.work.operations / timing.seconds * 1e-12,
      ceiling > 0 ? fmt::format("{:.1f} %", 100 * ceiling / timing.seconds) : "",
      choices_text(timing.choices));
  std::fflush(stdout);
}

// The result so far, in a table and a file.
class Report {
 public:
  Report(const DeviceBenchOptions& options, const device::AcceleratorCaps& caps)
      : options_(options) {
    json_ = {{"device", caps.name}, {"passes", options.passes}, {"rows", nlohmann::json::array()}};
  }
  Status add(const DeviceCase& made, const Timing& timing) {
    print_row(made, timing, ceilings_);
    json_["rows"].push_back(row_json(made, timing, ceilings_));
    return write();
  }
  // The ceilings are the best rates of the ceilings' own cases.
  void learn(const DeviceCase& made, const Timing& timing) {
    const double rate = (made.work.operations > 0 ? made.work.operations : made.work.bytes);
    double& ceiling =
        made.work.operations > 0 ? ceilings_.operations_per_second : ceilings_.bytes_per_second;
    ceiling = std::max(ceiling, rate / timing.seconds);
    json_["ceilings"] = {{"gb_per_s", ceilings_.bytes_per_second * 1e-9},
                         {"tflop_per_s", ceilings_.operations_per_second * 1e-12}};
  }
  Status leave_out(const PlannedCase& planned, const std::string& why) {
    fmt::print("{:20} {:>6} left out: {}\n", planned.op, planned.shape, why);
    json_["left_out"].push_back({{"op", planned.op}, {"shape", planned.shape}, {"why", why}});
    return write();
  }

 private:
  Status write() const {
    if (options_.json_path.empty()) {
      return {};
    }
    std::ofstream file(options_.json_path);
    file << json_.dump(1) << '\n';
    file.flush();
    return file.good()
               ? Status{}
               : Status{Error{ErrorCode::kIo, fmt::format("cannot write '{}'", options_.json_path),
                              "json"}};
  }

  const DeviceBenchOptions& options_;
  DeviceCeilings ceilings_;
  nlohmann::ordered_json json_;
};

DeviceCaseSizes sizes_of(const DeviceBenchOptions& options) {
  DeviceCaseSizes sizes = options.sizes == DeviceBenchSizes::kTiny    ? tiny_sizes()
                          : options.sizes == DeviceBenchSizes::kQuick ? quick_sizes()
                                                                      : DeviceCaseSizes{};
  if (!options.rows.empty()) {
    sizes.product_rows = options.rows;
  }
  return sizes;
}

// The papers' own question first, in case the time ends: attention, then products, then the rest.
Result<std::vector<PlannedCase>> planned_cases(const DeviceBenchOptions& options,
                                               const DeviceCaseSizes& sizes) {
  std::vector<PlannedCase> all = link_cases(sizes);
  for (const std::string& shape : options.shapes) {
    ASSIGN_OR_RETURN(const model::ModelConfig config, model::preset_config(shape));
    for (auto* cases : {&attention_cases, &product_cases, &row_cases}) {
      std::ranges::move((*cases)(shape, config, sizes), std::back_inserter(all));
    }
  }
  std::erase_if(all, [&](const PlannedCase& planned) {
    return planned.op.find(options.only) == std::string::npos;
  });
  return all;
}

Status run_bench(const DeviceBenchOptions& options) {
  const double began = seconds_now();
  const bool tiny = options.sizes == DeviceBenchSizes::kTiny;
  const DeviceCaseSizes sizes = sizes_of(options);
  ASSIGN_OR_RETURN(const std::vector<PlannedCase> planned, planned_cases(options, sizes));
  ASSIGN_OR_RETURN(const std::unique_ptr<DeviceStand> stand,
                   DeviceStand::open({.accelerator = options.accelerator,
                                      .device_memory_bytes = options.device_memory_bytes > 0
                                                                 ? options.device_memory_bytes
                                                                 : (tiny ? 96 * kMiB : 10 * kGiB),
                                      .host_memory_bytes = 2 * sizes.link_bytes}));
  const device::Device& device = stand->device();
  Report report(options, device.caps());
  Timer timer(*stand, options);
  fmt::print("{}\n", device.caps().name);
  print_head();
  const auto measure = [&](const PlannedCase& row, bool is_ceiling) -> Status {
    if (options.limit_seconds > 0 && seconds_now() - began > options.limit_seconds) {
      return report.leave_out(row, "the time is over (--limit)");
    }
    stand->clear();
    DeviceCase made = row.make(*stand);
    made.op = row.op;
    made.shape = row.shape;
    if (!stand->fits()) {
      return report.leave_out(row, fmt::format("it needs {} of device memory (--device-memory)",
                                               format_bytes(stand->taken_bytes())));
    }
    ASSIGN_OR_RETURN(Timing timing, timer.measure(made));
    if (is_ceiling && !tiny) {
      ASSIGN_OR_RETURN(timing, timer.measure(made));  // by now the clocks are up
    }
    if (device.failure() != nullptr) {
      return *device.failure();
    }
    if (is_ceiling) {
      report.learn(made, timing);
    }
    return report.add(made, timing);
  };
  for (const PlannedCase& ceiling : ceiling_cases(sizes)) {
    RETURN_IF_ERROR(measure(ceiling, true));
  }
  for (const PlannedCase& row : planned) {
    RETURN_IF_ERROR(measure(row, false));
  }
  return {};
}

}  // namespace

int bench_device(const DeviceBenchOptions& options) {
  const Status status = run_bench(options);
  return status.ok() ? 0 : failed(status.error().message);
}

}  // namespace tandem::bench
