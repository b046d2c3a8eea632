#include "loadgen/report_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>

#include "loadgen/report_plots.h"
#include "loadgen/report_style.h"
#include "loadgen/svg_plot.h"

namespace tandem::loadgen {

namespace {

bool is_simulated(const RunInfo& info) { return info.backend == "simulated"; }

std::string tile(std::string_view name, const std::string& value, const std::string& detail) {
  return fmt::format(
      "<div class=\"tile\"><div class=\"k\">{}</div><div class=\"v\">{}</div><div class=\"d\">{}"
      "</div></div>",
      name, value, detail);
}

// "12.3 <small>ms</small>".
std::string with_small_unit(const std::string& text) {
  const size_t space = text.find(' ');
  return space == std::string::npos
             ? text
             : fmt::format("{} <small>{}</small>", text.substr(0, space), text.substr(space + 1));
}

std::string tiles(const Summary& summary) {
  const GroupSummary& all = summary.all;
  const auto latency = [](std::string_view name, const Distribution& values) {
    return values.count() == 0 ? tile(name, "–", "no samples")
                               : tile(name, with_small_unit(short_millis(values.at(50))),
                                      fmt::format("median · P99 {}", short_millis(values.at(99))));
  };
  std::string html = "<section class=\"tiles\">";
  html += tile("Answered",
               fmt::format("{:.3g} <small>requests/s</small>", summary.per_second(all.done)),
               fmt::format("{} of {} sent", grouped(all.done), grouped(all.sent)));
  html += tile("Output",
               fmt::format("{} <small>tokens/s</small>",
                           short_count(std::round(summary.per_second(all.output_tokens)))),
               fmt::format("{} in · {} out", short_count(static_cast<double>(all.input_tokens)),
                           short_count(static_cast<double>(all.output_tokens))));
  html += latency("Time to first token", all.ttft);
  html += latency("Time per output token", all.tpot);
  html += latency("Time between tokens", all.itl);
  if (const std::optional<double> share = all.attainment_percent()) {
    html +=
        tile("Within targets", fmt::format("{:.1f} <small>%</small>", *share),
             fmt::format("{} of {} that have some", grouped(all.aimed_good), grouped(all.aimed)));
  } else {
    html += tile("Failed", grouped(all.failed),
                 all.failed == 0 ? "every answer was whole" : "see the reasons below");
  }
  return html + "</section>";
}

std::string header(const RunInfo& info, const Summary& summary) {
  const GroupSummary& all = summary.all;
  std::string html = fmt::format(
      "<header><h1>{}</h1><p class=\"sub\">{} · {} · {}{}</p><p class=\"lead\"><b>{}</b> of {} "
      "requests answered in <b>{:.1f} s</b>",
      escaped(info.label.empty() ? fmt::format("Load on {}", info.model) : info.label),
      escaped(info.label.empty() ? info.url : fmt::format("{} at {}", info.model, info.url)),
      is_simulated(info)              ? "simulated"
      : info.backend == "openai-chat" ? "chat completions"
                                      : "completions",
      escaped(info.date),
      info.commit.empty()
          ? ""
          : fmt::format(" · tandem {} ({})", info.tandem_version, escaped(info.commit)),
      grouped(all.done), grouped(all.planned), summary.duration_s);
  if (all.done > 0) {
    html += fmt::format(
        ": half of them saw their first token within <b>{}</b>, 99 of 100 within <b>{}</b>",
        short_millis(all.ttft.at(50)), short_millis(all.ttft.at(99)));
  }
  html += all.failed > 0 ? fmt::format("; <b class=\"bad\">{} failed</b>.", grouped(all.failed))
                         : std::string(".");
  html += "</p></header>";
  if (!summary.warnings.empty()) {
    html += "<section class=\"warn\">";
    for (const std::string& warning : summary.warnings) {
      html += fmt::format("<p>{}</p>", escaped(warning));
    }
    html += "</section>";
  }
  return html;
}

std::string targets_of(const Goodput& goodput) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (goodput.ttft) {
    add(fmt::format("TTFT ≤ {}", short_millis(to_millis(goodput.ttft->base))));
    if (goodput.ttft->per_token > Nanos{0}) {
      text +=
          fmt::format(" or {} a prompt token", short_millis(to_millis(goodput.ttft->per_token)));
    }
  }
  if (goodput.tpot) {
    add(fmt::format("TPOT ≤ {}", short_millis(to_millis(*goodput.tpot))));
  }
  if (goodput.e2el) {
    add(fmt::format("whole ≤ {}", short_millis(to_millis(*goodput.e2el))));
  }
  return text;
}

std::string group_row(const GroupSummary& group, const Summary& summary, int series) {
  std::string attainment = "–";
  if (const std::optional<double> share = group.attainment_percent()) {
    attainment = fmt::format("<span class=\"{}\" title=\"{}\">{:.1f} %</span>",
                             *share >= 99  ? "good"
                             : *share < 90 ? "bad"
                                           : "",
                             escaped(targets_of(group.goodput)), *share);
  }
  const std::string name =
      series < 0 ? escaped(group.name)
                 : fmt::format("<i class=\"swatch c{}\"></i>{}", series, escaped(group.name));
  std::string html = fmt::format(
      "<tr><td>{}</td><td>{}</td><td{}>{}</td><td>{}</td><td>{}</td><td>{:.2f}</td><td>{}</td>",
      name, grouped(group.done), group.failed > 0 ? " class=\"bad\"" : "", grouped(group.failed),
      short_count(static_cast<double>(group.input_tokens)),
      short_count(static_cast<double>(group.output_tokens)), summary.per_second(group.done),
      short_count(std::round(summary.per_second(group.output_tokens))));
  for (const Distribution* values : {&group.ttft, &group.tpot, &group.itl}) {
    html += values->count() == 0
                ? "<td>–</td><td>–</td>"
                : fmt::format("<td>{}</td><td>{}</td>", short_millis(values->at(50)),
                              short_millis(values->at(99)));
  }
  return html + fmt::format("<td>{}</td></tr>", attainment);
}

std::string group_table(std::string_view title, const std::vector<GroupSummary>& groups,
                        const Summary& summary) {
  std::string html = fmt::format(
      "<section class=\"card\"><div class=\"head\"><h2>{}</h2></div><div class=\"scroll\"><table>"
      "<tr><th></th><th>answered</th><th>failed</th><th>tokens in</th><th>out</th><th>req/s</th>"
      "<th>tok/s</th><th>TTFT P50</th><th>P99</th><th>TPOT P50</th><th>P99</th><th>TBT P50</th>"
      "<th>P99</th><th>in target</th></tr>",
      title);
  for (size_t i = 0; i < groups.size(); ++i) {
    html += group_row(groups[i], summary, series_of(i, groups.size()));
  }
  if (groups.size() > 1) {
    html += group_row(summary.all, summary, -1);
  }
  return html + "</table></div></section>";
}

std::string failures(const GroupSummary& all) {
  if (all.failed == 0) {
    return {};
  }
  std::string html =
      "<section class=\"card\"><div class=\"head\"><h2>Failures</h2></div><table><tr><th>reason"
      "</th><th>requests</th><th style=\"text-align:left\">the first one said</th></tr>";
  for (const auto& [reason, count] : all.reasons) {
    html += fmt::format("<tr><td>{}</td><td class=\"bad\">{}</td><td class=\"text\">{}</td></tr>",
                        escaped(reason), grouped(count), escaped(all.examples.at(reason)));
  }
  return html + "</table></section>";
}

std::string percentile_table(const RunInfo& info, const Summary& summary) {
  std::string html =
      "<section class=\"card\"><div class=\"head\"><h2>All percentiles</h2></div><div "
      "class=\"scroll\"><table "
      "class=\"dense\"><tr><th></th><th>samples</th><th>mean</th><th>min</th>";
  for (const double percent : kPercentiles) {
    html += fmt::format("<th>P{:g}</th>", percent);
  }
  html += "<th>max</th></tr>";
  const std::pair<std::string_view, const Distribution*> rows[] = {
      {"Time to first token (TTFT)", &summary.all.ttft},
      {"Time per output token (TPOT)", &summary.all.tpot},
      {"Time between tokens (TBT)", &summary.all.itl},
      {"Whole answer (E2EL)", &summary.all.e2el},
      {"Lateness of the generator", &summary.lateness}};
  for (const auto& [name, values] : rows) {
    if (values == &summary.lateness && is_simulated(info)) {
      continue;
    }
    const auto cell = [empty = values->count() == 0](double figure) {
      return fmt::format("<td>{}</td>", empty ? "–" : short_millis(figure));
    };
    html += fmt::format("<tr><td>{}</td><td>{}</td>{}{}", name, grouped(values->count()),
                        cell(values->mean), cell(values->least()));
    for (const double percent : kPercentiles) {
      html += cell(values->at(percent));
    }
    html += cell(values->most()) + "</tr>";
  }
  return html + "</table></div></section>";
}

std::string generator_note(const Summary& summary) {
  return fmt::format(
      "The generator sent them {} late at P50 and {} at P99, used {:.1f} % of one core and {} "
      "connections. {} prompts had another length than planned by the server's count.",
      short_millis(summary.lateness.at(50)), short_millis(summary.lateness.at(99)),
      100 * summary.cpu_share, grouped(summary.connections), grouped(summary.all.other_inputs));
}

std::string figure_text(const nlohmann::ordered_json& value) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  if (!value.is_number()) {
    return value.dump();
  }
  const auto number = value.get<double>();
  const bool is_whole = number == std::round(number) && std::abs(number) < 1e15;
  return is_whole ? grouped(static_cast<int64_t>(number)) : fmt::format("{:.4g}", number);
}

std::string in_words(std::string name) {
  std::ranges::replace(name, '_', ' ');
  return escaped(name);
}

std::string accuracy_cell(const Accuracy& accuracy) {
  return accuracy.judged == 0 ? std::string("<td>–</td>")
                              : fmt::format("<td>{:.1f} % <small>of {}</small></td>",
                                            accuracy.percent(), grouped(accuracy.judged));
}

// The share of right answers, by ability and by class.
std::string accuracy_table(const Summary& summary) {
  if (summary.abilities.empty()) {
    return {};
  }
  std::string html =
      "<section class=\"card\"><div class=\"head\"><h2>Right answers</h2></div><div "
      "class=\"scroll\"><table><tr><th>Task</th><th>All</th>";
  for (const GroupSummary& group : summary.groups) {
    html += fmt::format("<th>{}</th>", escaped(group.name));
  }
  for (const AbilitySummary& ability : summary.abilities) {
    html +=
        fmt::format("</tr><tr><td>{}</td>{}", escaped(ability.name), accuracy_cell(ability.all));
    for (const Accuracy& accuracy : ability.groups) {
      html += accuracy_cell(accuracy);
    }
  }
  return html + "</tr></table></div></section>";
}

// {"mixed": {"steps": 5}, "decode": {"steps": 7}}: a row for each.
std::string rows_card(const std::string& title, const nlohmann::ordered_json& rows) {
  std::string html = fmt::format(
      "<section class=\"card\"><div class=\"head\"><h2>{}</h2></div><div "
      "class=\"scroll\"><table><tr><th></th>",
      title);
  for (const auto& [name, value] : rows.front().items()) {
    html += fmt::format("<th>{}</th>", in_words(name));
  }
  html += "</tr>";
  for (const auto& [name, row] : rows.items()) {
    html += fmt::format("<tr><td>{}</td>", in_words(name));
    for (const nlohmann::ordered_json& value : row) {
      html += fmt::format("<td>{}</td>", escaped(figure_text(value)));
    }
    html += "</tr>";
  }
  return html + "</table></div></section>";
}

struct MachineText {
  std::string facts;   // rows of one table
  std::string tables;  // cards
};

// Objects of objects are tables; other objects are facts whose names begin with theirs.
void add_facts(const nlohmann::ordered_json& json, const std::string& prefix, MachineText& text) {
  for (const auto& [name, value] : json.items()) {
    std::string title = in_words(prefix + name);
    if (!value.is_object()) {
      text.facts +=
          fmt::format("<tr><td>{}</td><td>{}</td></tr>", title, escaped(figure_text(value)));
    } else if (!value.empty() && std::ranges::all_of(value, &nlohmann::ordered_json::is_object)) {
      title.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(title.front())));
      text.tables += rows_card(title, value);
    } else {
      add_facts(value, prefix + name + " ", text);
    }
  }
}

// What the simulated machine is, and what it did.
std::string machine_cards(const RunInfo& info) {
  MachineText text;
  add_facts(info.machine, "", text);
  return fmt::format(
      "<section class=\"card\"><div class=\"head\"><h2>Simulated machine</h2></div><table "
      "class=\"facts\">{}</table></section>{}",
      text.facts, text.tables);
}

std::string how_it_was_made(const RunInfo& info, const Load& load, const Summary& summary) {
  std::string html = fmt::format(
      "<section class=\"card\"><div class=\"head\"><h2>How this was {}</h2></div>"
      "<p class=\"note\">Open loop: requests leave at their planned times whatever the server "
      "does{}. {} {} prompts and {} answers of the plan were cut to limits. TTFT counts from the "
      "moment a request was sent, TPOT is (last token − first token) / (tokens − 1), TBT is the "
      "time between two chunks that brought a token.</p><pre>{}</pre>",
      is_simulated(info) ? "simulated" : "measured",
      info.max_concurrency > 0
          ? fmt::format(", but at most {} at a time", grouped(info.max_concurrency))
          : "",
      is_simulated(info) ? "All times are virtual: nothing was computed, and the same command "
                           "gives the same figures on every machine."
                         : generator_note(summary),
      grouped(load.cut_inputs), grouped(load.cut_outputs), escaped(info.command));
  const auto details = [&html](std::string_view title, const nlohmann::ordered_json& json) {
    if (!json.is_null()) {
      html += fmt::format(
          "<details><summary>{}</summary><pre>{}</pre></details>", title,
          escaped(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace)));
    }
  };
  details("Effective options", info.config);
  details("The server's configuration", info.server_config);
  if (!is_simulated(info)) {
    details("Machine of the generator", info.machine);
  }
  return html + "</section>";
}

}  // namespace

ReportPage report_page(const RunInfo& info, const Load& load, const RunResult& run,
                       const Summary& summary, const std::string& cards) {
  PlotBook book;
  std::string html = fmt::format(
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>{}</title><style>{}</style></head>"
      "<body><main>",
      escaped(info.label.empty() ? fmt::format("Load on {}", info.model) : info.label),
      kReportStyle);
  html += header(info, summary);
  html += tiles(summary);
  html += timeline_card(summary, book);
  html += distribution_cards(summary, book);
  html += scatter_cards(load, run, summary, book);
  html += group_table("Classes", summary.groups, summary);
  if (summary.models.size() > 1) {
    html += group_table(summary.models_are_engines ? "Engines" : "Models", summary.models, summary);
  }
  html += accuracy_table(summary);
  html += failures(summary.all);
  html += cards;
  html += percentile_table(info, summary);
  if (is_simulated(info)) {
    html += machine_cards(info);
  }
  html += how_it_was_made(info, load, summary);
  html += fmt::format("<footer>Made by tandem {}.</footer></main></body></html>\n",
                      is_simulated(info) ? "simulate" : "bench serve");
  return {.html = std::move(html), .plots = book.files()};
}

std::string report_html(const RunInfo& info, const Load& load, const RunResult& run,
                        const Summary& summary) {
  return report_page(info, load, run, summary, "").html;
}

}  // namespace tandem::loadgen
