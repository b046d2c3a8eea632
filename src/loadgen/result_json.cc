#include "loadgen/result_json.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>

namespace tandem::loadgen {

namespace {

// "99", "99.9".
std::string percent_name(double percent) { return fmt::format("{:g}", percent); }

// Null without samples: 0 ms would be the best of all figures.
nlohmann::ordered_json figure(const Distribution& distribution, double value) {
  return distribution.count() == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(value);
}

nlohmann::ordered_json describe(const Distribution& distribution) {
  nlohmann::ordered_json json;
  json["count"] = distribution.count();
  json["mean"] = figure(distribution, distribution.mean);
  json["std"] = figure(distribution, distribution.deviation);
  json["min"] = figure(distribution, distribution.least());
  json["max"] = figure(distribution, distribution.most());
  for (const double percent : kPercentiles) {
    json["percentiles"][percent_name(percent)] = figure(distribution, distribution.at(percent));
  }
  return json;
}

nlohmann::ordered_json describe(const Goodput& goodput) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (goodput.ttft) {
    json["ttft"] = {{"base_ms", to_millis(goodput.ttft->base)},
                    {"per_token_ms", to_millis(goodput.ttft->per_token)},
                    {"cap_ms", goodput.ttft->cap == Nanos::max()
                                   ? nlohmann::ordered_json()
                                   : nlohmann::ordered_json(to_millis(goodput.ttft->cap))}};
  }
  if (goodput.tpot) {
    json["tpot_ms"] = to_millis(*goodput.tpot);
  }
  if (goodput.e2el) {
    json["e2el_ms"] = to_millis(*goodput.e2el);
  }
  return json;
}

nlohmann::ordered_json describe(const Accuracy& answers) {
  return {{"judged", answers.judged},
          {"right", answers.right},
          {"accuracy", answers.judged == 0 ? nlohmann::ordered_json()
                                           : nlohmann::ordered_json(answers.percent() / 100)}};
}

nlohmann::ordered_json describe(const AbilitySummary& ability, const Summary& summary) {
  nlohmann::ordered_json json = describe(ability.all);
  json["name"] = ability.name;
  for (size_t i = 0; i < ability.groups.size(); ++i) {
    json["classes"][summary.groups[i].name] = describe(ability.groups[i]);
  }
  if (!ability.wrong_id.empty()) {
    json["wrong_example"] = {{"id", ability.wrong_id}, {"answer", ability.wrong_answer}};
  }
  return json;
}

nlohmann::ordered_json describe(const GroupSummary& group, const Summary& summary) {
  nlohmann::ordered_json json;
  json["name"] = group.name;
  json["planned"] = group.planned;
  json["sent"] = group.sent;
  json["completed"] = group.done;
  json["failed"] = group.failed;
  json["interrupted"] = group.interrupted;
  json["failures"] = group.reasons;
  json["input_tokens"] = group.input_tokens;
  json["output_tokens"] = group.output_tokens;
  json["cached_input_tokens"] = group.cached_tokens;
  json["request_throughput"] = summary.per_second(group.done);
  json["output_throughput"] = summary.per_second(group.output_tokens);
  if (group.goodput.any()) {
    json["goodput_targets"] = describe(group.goodput);
    json["good"] = group.good;
    json["request_goodput"] = summary.per_second(group.good);
    const std::optional<double> percent = group.attainment_percent();
    json["slo_attainment"] =
        percent ? nlohmann::ordered_json(*percent / 100) : nlohmann::ordered_json();
  }
  json["other_service_tier"] = group.other_tiers;
  if (group.answers.judged > 0) {
    json["answers"] = describe(group.answers);
  }
  if (group.judged > 0) {
    json["engine_slo_attainment"] =
        static_cast<double>(group.judged_good) / static_cast<double>(group.judged);
  }
  if (group.engine_ttft.count() > 0) {
    json["engine_ttft_ms"] = describe(group.engine_ttft);
  }
  json["ttft_ms"] = describe(group.ttft);
  json["tpot_ms"] = describe(group.tpot);
  json["itl_ms"] = describe(group.itl);
  json["e2el_ms"] = describe(group.e2el);
  return json;
}

nlohmann::ordered_json timeline(const Summary& summary) {
  nlohmann::ordered_json json;
  json["slice_s"] = summary.slice_s;
  for (const TimelineSlice& slice : summary.timeline) {
    json["begin_s"].push_back(slice.begin_s);
    json["planned"].push_back(slice.planned);
    json["sent"].push_back(slice.sent);
    json["completed"].push_back(slice.done);
    json["failed"].push_back(slice.failed);
    json["token_chunks"].push_back(slice.chunks);
    json["running"].push_back(slice.under_way);
  }
  return json;
}

// vLLM's lists, one entry a request that was sent; times in seconds.
void add_requests(const RunResult& run, nlohmann::ordered_json& json) {
  for (const char* list : {"input_lens", "output_lens", "ttfts", "itls", "start_times", "errors"}) {
    json[list] = nlohmann::ordered_json::array();
  }
  for (const RequestRecord& record : run.records) {
    if (record.outcome == Outcome::kNotSent) {
      continue;
    }
    const bool done = record.outcome == Outcome::kDone;
    json["input_lens"].push_back(record.input_tokens());
    json["output_lens"].push_back(done ? record.output_tokens() : 0);
    json["ttfts"].push_back(done ? to_seconds(record.ttft()) : 0.0);
    nlohmann::ordered_json gaps = nlohmann::ordered_json::array();
    for (size_t i = 1; i < record.chunk_times.size(); ++i) {
      gaps.push_back(to_seconds(record.chunk_times[i] - record.chunk_times[i - 1]));
    }
    json["itls"].push_back(std::move(gaps));
    json["start_times"].push_back(to_seconds(record.sent_at));
    json["errors"].push_back(record.outcome == Outcome::kInterrupted ? "interrupted"
                             : record.reason.empty()
                                 ? ""
                                 : fmt::format("{}: {}", record.reason, record.message));
  }
}

nlohmann::ordered_json requests(const Load& load, const RunResult& run) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const RequestRecord& record : run.records) {
    nlohmann::ordered_json json;
    json["group"] = load.groups[static_cast<size_t>(record.group)].name;
    json["model"] = load.models[static_cast<size_t>(record.model)];
    json["planned_s"] = to_seconds(record.planned_at);
    json["planned_input_tokens"] = record.planned_input_tokens;
    json["planned_output_tokens"] = record.planned_output_tokens;
    if (record.outcome != Outcome::kNotSent) {
      json["sent_s"] = to_seconds(record.sent_at);
      json["ended_s"] = to_seconds(record.ended_at);
      json["lateness_ms"] = to_millis(record.lateness());
      json["status"] = record.status;
      json["finish_reason"] = record.finish_reason;
      json["service_tier"] = record.service_tier.empty()
                                 ? nlohmann::ordered_json()
                                 : nlohmann::ordered_json(record.service_tier);
    }
    if (record.task != nullptr) {
      json["task"] = record.task->id;
      json["answer"] = record.answer;
      json["right"] = record.outcome == Outcome::kDone && is_right(*record.task, record.answer);
    }
    json["outcome"] = record.outcome == Outcome::kDone          ? "completed"
                      : record.outcome == Outcome::kFailed      ? record.reason
                      : record.outcome == Outcome::kInterrupted ? "interrupted"
                                                                : "not_sent";
    list.push_back(std::move(json));
  }
  return list;
}

void add_metric(const RunInfo& info, std::string_view name, const Distribution& values,
                nlohmann::ordered_json& json) {
  json[fmt::format("mean_{}_ms", name)] = figure(values, values.mean);
  json[fmt::format("median_{}_ms", name)] = figure(values, values.at(50));
  json[fmt::format("std_{}_ms", name)] = figure(values, values.deviation);
  for (const double percent : info.percentiles) {
    json[fmt::format("p{}_{}_ms", percent_name(percent), name)] =
        figure(values, values.at(percent));
  }
}

void add_vllm_keys(const RunInfo& info, const Summary& summary, nlohmann::ordered_json& json) {
  const GroupSummary& all = summary.all;
  json["date"] = info.date;
  json["endpoint_type"] = info.backend;
  json["backend"] = info.backend;
  json["label"] =
      info.label.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(info.label);
  json["model_id"] = info.model;
  json["tokenizer_id"] = info.model;
  json["num_prompts"] = all.planned;
  json["request_rate"] = std::isinf(info.request_rate) ? nlohmann::ordered_json("inf")
                                                       : nlohmann::ordered_json(info.request_rate);
  json["burstiness"] = info.burstiness;
  json["max_concurrency"] = info.max_concurrency == 0
                                ? nlohmann::ordered_json()
                                : nlohmann::ordered_json(info.max_concurrency);
  json["duration"] = summary.duration_s;
  json["completed"] = all.done;
  json["failed"] = all.failed;
  json["total_input_tokens"] = all.input_tokens;
  json["total_output_tokens"] = all.output_tokens;
  json["request_throughput"] = summary.per_second(all.done);
  json["request_goodput"] = all.goodput.any() ? nlohmann::ordered_json(summary.per_second(all.good))
                                              : nlohmann::ordered_json();
  json["output_throughput"] = summary.per_second(all.output_tokens);
  json["total_token_throughput"] = summary.per_second(all.input_tokens + all.output_tokens);
  json["max_output_tokens_per_s"] = summary.most_tokens_per_s;
  json["max_concurrent_requests"] = summary.most_under_way;
  add_metric(info, "ttft", all.ttft, json);
  add_metric(info, "tpot", all.tpot, json);
  add_metric(info, "itl", all.itl, json);
  add_metric(info, "e2el", all.e2el, json);
  for (const auto& [key, value] : info.metadata.items()) {
    if (!json.contains(key)) {
      json[key] = value;
    }
  }
}

}  // namespace

nlohmann::ordered_json result_json(const RunInfo& info, const Load& load, const RunResult& run,
                                   const Summary& summary, Detail detail) {
  nlohmann::ordered_json json;
  add_vllm_keys(info, summary, json);
  nlohmann::ordered_json& ours = json["tandem"];
  ours["schema"] = 1;
  ours["version"] = info.tandem_version;
  ours["commit"] =
      info.commit.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(info.commit);
  ours["command"] = info.command;
  ours["config"] = info.config;
  ours["server"] = {{"url", info.url}, {"config", info.server_config}};
  ours["machine"] = info.machine;
  ours["interrupted"] = summary.interrupted;
  ours["warnings"] = summary.warnings;
  ours["generator"] = {{"lateness_ms", describe(summary.lateness)},
                       {"concurrency_wait_ms", describe(summary.client_wait)},
                       {"cpu_share", summary.cpu_share},
                       {"connections", summary.connections},
                       {"cut_inputs", load.cut_inputs},
                       {"cut_outputs", load.cut_outputs},
                       {"skipped_rows", load.skipped_rows},
                       {"other_input_lengths", summary.all.other_inputs},
                       {"short_outputs", summary.all.short_outputs}};
  ours["all"] = describe(summary.all, summary);
  for (const GroupSummary& group : summary.groups) {
    ours["classes"].push_back(describe(group, summary));
  }
  for (const GroupSummary& model : summary.models) {
    ours[summary.models_are_engines ? "engines" : "models"].push_back(describe(model, summary));
  }
  for (const AbilitySummary& ability : summary.abilities) {
    ours["tasks"].push_back(describe(ability, summary));
  }
  ours["timeline"] = timeline(summary);
  if (detail == Detail::kRequests) {
    add_requests(run, json);
    ours["requests"] = requests(load, run);
  }
  return json;
}

Status write_text(const std::string& path, const std::string& text) {
  const auto failed = [&path](std::string_view why) {
    return Error{ErrorCode::kIo, fmt::format("cannot write '{}': {}", path, why), {}};
  };
  const std::filesystem::path target(path);
  std::error_code error;
  if (target.has_parent_path()) {
    std::filesystem::create_directories(target.parent_path(), error);
    if (error) {
      return failed(error.message());
    }
  }
  // A device or a pipe is written to; renaming would replace it by a file.
  const bool is_special = std::filesystem::exists(target, error) &&
                          !std::filesystem::is_regular_file(target, error) &&
                          !std::filesystem::is_directory(target, error);
  const std::string temporary = is_special ? path : path + ".part";
  std::ofstream file(temporary, std::ios::binary);
  file << text;
  file.close();
  if (!file) {
    return failed("the folder or the disk does not take it");
  }
  if (is_special) {
    return {};
  }
  std::filesystem::rename(temporary, target, error);
  return error ? Status{failed(error.message())} : Status{};
}

}  // namespace tandem::loadgen
