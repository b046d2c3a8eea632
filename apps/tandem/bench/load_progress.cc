#include "bench/load_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"

namespace tandem::bench {

LoadProgress::LoadProgress() : terminal_(::isatty(STDERR_FILENO) == 1) {}

void LoadProgress::show(const loadgen::LiveCounts& counts) {
  const double passed = to_seconds(counts.elapsed - before_.elapsed);
  if (passed >= 1) {
    chunks_per_s_ = static_cast<double>(counts.chunks - before_.chunks) / passed;
    done_per_s_ = static_cast<double>(counts.done - before_.done) / passed;
    before_ = counts;
  }
  const Nanos pause = terminal_ ? Nanos{0} : Nanos(std::chrono::seconds(5));
  if (counts.elapsed - last_line_ < pause) {
    return;
  }
  last_line_ = counts.elapsed;
  const int64_t ended = counts.done + counts.failed;
  const std::string text =
      fmt::format("{}/{} ended, {} running, {} failed | {:.1f} req/s, {:.0f} tok/s | {:.0f} s",
                  ended, counts.planned, counts.under_way, counts.failed, done_per_s_,
                  chunks_per_s_, to_seconds(counts.elapsed));
  if (!terminal_) {
    log::info("{}", text);
    return;
  }
  constexpr int64_t kWidth = 30;
  const auto filled = static_cast<size_t>(kWidth * ended / std::max<int64_t>(counts.planned, 1));
  fmt::print(stderr, "\r\033[K[{}{}] {}", std::string(filled, '#'),
             std::string(static_cast<size_t>(kWidth) - filled, '.'), text);
  std::fflush(stderr);
  shown_ = true;
}

void LoadProgress::finish() {
  if (shown_) {
    fmt::print(stderr, "\r\033[K");
  }
}

namespace {

void print_row(std::string_view name, const std::string& value) {
  fmt::print("{:<44} {:>14}\n", name, value);
}

void print_metric(std::string_view title, std::string_view name,
                  const loadgen::Distribution& values, const std::vector<double>& percentiles) {
  if (values.count() == 0) {
    return;
  }
  fmt::print("{:-^59}\n", title);
  print_row(fmt::format("Mean {} (ms):", name), fmt::format("{:.2f}", values.mean));
  print_row(fmt::format("Median {} (ms):", name), fmt::format("{:.2f}", values.at(50)));
  for (const double percent : percentiles) {
    print_row(fmt::format("P{:g} {} (ms):", percent, name),
              fmt::format("{:.2f}", values.at(percent)));
  }
}

std::string percent_of(int64_t part, int64_t whole) {
  return fmt::format(
      "{:.1f}", whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0);
}

void print_group(const loadgen::GroupSummary& group, const loadgen::Summary& summary) {
  const std::optional<double> attainment = group.attainment_percent();
  const auto millis = [](const loadgen::Distribution& values, double percent, int digits) {
    return values.count() == 0 ? "-" : fmt::format("{:.{}f}", values.at(percent), digits);
  };
  fmt::print("{:<20} {:>7} {:>7} {:>9.2f} {:>10.1f} {:>9} {:>9} {:>9} {:>8}\n", group.name,
             group.done, group.failed, summary.per_second(group.done),
             summary.per_second(group.output_tokens), millis(group.ttft, 50, 1),
             millis(group.ttft, 99, 1), millis(group.tpot, 50, 2),
             attainment ? fmt::format("{:.1f} %", *attainment) : "-");
}

void print_groups(std::string_view what, const std::vector<loadgen::GroupSummary>& groups,
                  const loadgen::Summary& summary) {
  if (groups.size() < 2) {
    return;
  }
  fmt::print("{:-^96}\n", what);
  fmt::print("{:<20} {:>7} {:>7} {:>9} {:>10} {:>9} {:>9} {:>9} {:>8}\n", "", "done", "failed",
             "req/s", "out tok/s", "TTFT P50", "TTFT P99", "TPOT P50", "good");
  for (const loadgen::GroupSummary& group : groups) {
    print_group(group, summary);
  }
}

}  // namespace

void print_summary(const loadgen::Summary& summary, const std::vector<std::string>& metrics,
                   const std::vector<double>& percentiles) {
  const loadgen::GroupSummary& all = summary.all;
  fmt::print("{:=^59}\n", " Serving Benchmark Result ");
  print_row("Successful requests:", fmt::format("{}", all.done));
  print_row("Failed requests:", fmt::format("{}", all.failed));
  for (const auto& [reason, count] : all.reasons) {
    print_row(fmt::format("  {}:", reason), fmt::format("{}", count));
  }
  print_row("Benchmark duration (s):", fmt::format("{:.2f}", summary.duration_s));
  print_row("Total input tokens:", fmt::format("{}", all.input_tokens));
  print_row("Total generated tokens:", fmt::format("{}", all.output_tokens));
  print_row("Request throughput (req/s):", fmt::format("{:.2f}", summary.per_second(all.done)));
  if (all.goodput.any()) {
    print_row("Request goodput (req/s):", fmt::format("{:.2f}", summary.per_second(all.good)));
  }
  if (const std::optional<double> attainment = all.attainment_percent()) {
    print_row("Within their targets (%):", fmt::format("{:.1f}", *attainment));
  }
  if (all.judged > 0) {
    print_row("By the server's own clock (%):", percent_of(all.judged_good, all.judged));
  }
  print_row("Output token throughput (tok/s):",
            fmt::format("{:.2f}", summary.per_second(all.output_tokens)));
  print_row("Peak concurrent requests:", fmt::format("{}", summary.most_under_way));
  print_row("Generator lateness P50 / P99 (ms):",
            fmt::format("{:.2f} / {:.2f}", summary.lateness.at(50), summary.lateness.at(99)));
  const auto wanted = [&](std::string_view name) {
    return std::ranges::find(metrics, name) != metrics.end();
  };
  if (wanted("ttft")) {
    print_metric("Time to First Token", "TTFT", all.ttft, percentiles);
  }
  if (wanted("tpot")) {
    print_metric("Time per Output Token (excl. 1st token)", "TPOT", all.tpot, percentiles);
  }
  if (wanted("itl")) {
    print_metric("Inter-token Latency", "ITL", all.itl, percentiles);
  }
  if (wanted("e2el")) {
    print_metric("End-to-end Latency", "E2EL", all.e2el, percentiles);
  }
  print_groups("By class", summary.groups, summary);
  print_groups("By model", summary.models, summary);
  fmt::print("{:=^59}\n", "");
  std::fflush(stdout);
}

}  // namespace tandem::bench
