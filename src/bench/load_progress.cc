#include "bench/load_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "base/log.h"

namespace tandem::bench {

std::string progress_text(const loadgen::LiveCounts& counts, double done_per_s,
                          double chunks_per_s) {
  return fmt::format("{}/{} ended, {} running, {} failed | {:.1f} req/s, {:.0f} tok/s | {:.0f} s",
                     counts.done + counts.failed, counts.planned, counts.under_way, counts.failed,
                     done_per_s, chunks_per_s, to_seconds(counts.elapsed));
}

std::string progress_bar(const loadgen::LiveCounts& counts) {
  constexpr int64_t kWidth = 30;
  const int64_t ended = counts.done + counts.failed;
  const auto filled = static_cast<size_t>(kWidth * ended / std::max<int64_t>(counts.planned, 1));
  return std::string(filled, '#') + std::string(static_cast<size_t>(kWidth) - filled, '.');
}

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
  const std::string text = progress_text(counts, done_per_s_, chunks_per_s_);
  if (!terminal_) {
    log::info("{}", text);
    return;
  }
  fmt::print(stderr, "\r\033[K[{}] {}", progress_bar(counts), text);
  std::fflush(stderr);
  shown_ = true;
}

void LoadProgress::finish() {
  if (shown_) {
    fmt::print(stderr, "\r\033[K");
  }
}

namespace {

void add_row(std::string& out, std::string_view name, const std::string& value) {
  fmt::format_to(std::back_inserter(out), "{:<44} {:>14}\n", name, value);
}

void add_metric(std::string& out, std::string_view title, std::string_view name,
                const loadgen::Distribution& values, const std::vector<double>& percentiles) {
  if (values.count() == 0) {
    return;
  }
  fmt::format_to(std::back_inserter(out), "{:-^59}\n", title);
  add_row(out, fmt::format("Mean {} (ms):", name), fmt::format("{:.2f}", values.mean));
  add_row(out, fmt::format("Median {} (ms):", name), fmt::format("{:.2f}", values.at(50)));
  for (const double percent : percentiles) {
    add_row(out, fmt::format("P{:g} {} (ms):", percent, name),
            fmt::format("{:.2f}", values.at(percent)));
  }
}

std::string percent_of(int64_t part, int64_t whole) {
  return fmt::format(
      "{:.1f}", whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0);
}

void add_group(std::string& out, const loadgen::GroupSummary& group,
               const loadgen::Summary& summary) {
  const std::optional<double> attainment = group.attainment_percent();
  const auto millis = [](const loadgen::Distribution& values, double percent, int digits) {
    return values.count() == 0 ? "-" : fmt::format("{:.{}f}", values.at(percent), digits);
  };
  fmt::format_to(
      std::back_inserter(out), "{:<20} {:>7} {:>7} {:>9.2f} {:>10.1f} {:>9} {:>9} {:>9} {:>8}\n",
      group.name, group.done, group.failed, summary.per_second(group.done),
      summary.per_second(group.output_tokens), millis(group.ttft, 50, 1), millis(group.ttft, 99, 1),
      millis(group.tpot, 50, 2), attainment ? fmt::format("{:.1f} %", *attainment) : "-");
}

void add_groups(std::string& out, std::string_view what,
                const std::vector<loadgen::GroupSummary>& groups, const loadgen::Summary& summary) {
  if (groups.size() < 2) {
    return;
  }
  fmt::format_to(std::back_inserter(out), "{:-^96}\n", what);
  fmt::format_to(std::back_inserter(out),
                 "{:<20} {:>7} {:>7} {:>9} {:>10} {:>9} {:>9} {:>9} {:>8}\n", "", "done", "failed",
                 "req/s", "out tok/s", "TTFT P50", "TTFT P99", "TPOT P50", "good");
  for (const loadgen::GroupSummary& group : groups) {
    add_group(out, group, summary);
  }
}

// The share of right answers by ability, and by class if there are several classes.
void add_abilities(std::string& out, const loadgen::Summary& summary) {
  if (summary.abilities.empty()) {
    return;
  }
  const auto percent = [](const loadgen::Accuracy& accuracy) {
    return accuracy.judged == 0 ? "-" : percent_of(accuracy.right, accuracy.judged);
  };
  fmt::format_to(std::back_inserter(out), "{:-^59}\n{:<24} {:>7} {:>9}", "Right answers", "",
                 "judged", "right (%)");
  const bool by_class = summary.groups.size() > 1;
  for (const loadgen::GroupSummary& group : summary.groups) {
    out += by_class ? fmt::format(" {:>18.18}", group.name) : "";
  }
  for (const loadgen::AbilitySummary& ability : summary.abilities) {
    fmt::format_to(std::back_inserter(out), "\n{:<24} {:>7} {:>9}", ability.name,
                   ability.all.judged, percent(ability.all));
    for (const loadgen::Accuracy& group : ability.groups) {
      out += by_class ? fmt::format(" {:>18}", percent(group)) : "";
    }
  }
  out += '\n';
}

}  // namespace

std::string summary_text(const loadgen::Summary& summary, const std::vector<std::string>& metrics,
                         const std::vector<double>& percentiles) {
  const loadgen::GroupSummary& all = summary.all;
  std::string out;
  fmt::format_to(std::back_inserter(out), "{:=^59}\n", " Serving Benchmark Result ");
  add_row(out, "Successful requests:", fmt::format("{}", all.done));
  add_row(out, "Failed requests:", fmt::format("{}", all.failed));
  for (const auto& [reason, count] : all.reasons) {
    add_row(out, fmt::format("  {}:", reason), fmt::format("{}", count));
  }
  add_row(out, "Benchmark duration (s):", fmt::format("{:.2f}", summary.duration_s));
  add_row(out, "Total input tokens:", fmt::format("{}", all.input_tokens));
  add_row(out, "Total generated tokens:", fmt::format("{}", all.output_tokens));
  add_row(out, "Request throughput (req/s):", fmt::format("{:.2f}", summary.per_second(all.done)));
  if (all.goodput.any()) {
    add_row(out, "Request goodput (req/s):", fmt::format("{:.2f}", summary.per_second(all.good)));
  }
  if (const std::optional<double> attainment = all.attainment_percent()) {
    add_row(out, "Within their targets (%):", fmt::format("{:.1f}", *attainment));
  }
  if (all.judged > 0) {
    add_row(out, "By the server's own clock (%):", percent_of(all.judged_good, all.judged));
  }
  if (all.answers.judged > 0) {
    add_row(out, "Right answers (%):", percent_of(all.answers.right, all.answers.judged));
  }
  add_row(out, "Output token throughput (tok/s):",
          fmt::format("{:.2f}", summary.per_second(all.output_tokens)));
  add_row(out, "Peak concurrent requests:", fmt::format("{}", summary.most_under_way));
  add_row(out, "Generator lateness P50 / P99 (ms):",
          fmt::format("{:.2f} / {:.2f}", summary.lateness.at(50), summary.lateness.at(99)));
  const auto wanted = [&](std::string_view name) {
    return std::ranges::find(metrics, name) != metrics.end();
  };
  if (wanted("ttft")) {
    add_metric(out, "Time to First Token", "TTFT", all.ttft, percentiles);
  }
  if (wanted("tpot")) {
    add_metric(out, "Time per Output Token (excl. 1st token)", "TPOT", all.tpot, percentiles);
  }
  if (wanted("itl")) {
    add_metric(out, "Inter-token Latency", "ITL", all.itl, percentiles);
  }
  if (wanted("e2el")) {
    add_metric(out, "End-to-end Latency", "E2EL", all.e2el, percentiles);
  }
  add_groups(out, "By class", summary.groups, summary);
  add_groups(out, summary.models_are_engines ? "By engine" : "By model", summary.models, summary);
  add_abilities(out, summary);
  fmt::format_to(std::back_inserter(out), "{:=^59}\n", "");
  return out;
}

}  // namespace tandem::bench
