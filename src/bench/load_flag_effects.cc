#include "bench/load_flag_effects.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "workload/arrivals.h"
#include "workload/schedule.h"

namespace tandem::bench {
namespace {

const StreamFlags kDefaults;

bool from_trace(const loadgen::LoadStream& stream) {
  return stream.options.source == workload::Source::kTrace;
}

bool draws_lengths(const loadgen::LoadStream& stream) { return !from_trace(stream); }

bool draws_prompts(const loadgen::LoadStream& stream) {
  return draws_lengths(stream) && stream.tasks == nullptr;
}

bool shares_beginnings(const loadgen::LoadStream& stream) {
  return draws_prompts(stream) && stream.options.prefix_tokens > 0;
}

bool arrives_in(const loadgen::LoadStream& stream, workload::ArrivalKind kind) {
  return !stream.options.arrivals_from_trace && stream.options.arrivals.kind == kind;
}

bool in_bursts(const loadgen::LoadStream& stream) {
  return arrives_in(stream, workload::ArrivalKind::kBursts);
}

bool has_random_gaps(const loadgen::LoadStream& stream) {
  return arrives_in(stream, workload::ArrivalKind::kRandom) &&
         !std::isinf(stream.options.arrivals.rate_per_s);
}

bool has_a_rate(const loadgen::LoadStream& stream) {
  return !stream.options.arrivals_from_trace && !in_bursts(stream);
}

struct Flag {
  const char* name;
  bool (*changed)(const StreamFlags& flags);
  bool (*used)(const loadgen::LoadStream& stream);
  const char* cure;
};

// `field` differs from its default.
template <auto field>
bool differs(const StreamFlags& flags) {
  return flags.*field != kDefaults.*field;
}

constexpr const char* kNeedsTrace = "it is about a trace: give --dataset-path, or leave it out";
constexpr const char* kNeedsDrawn =
    "a trace and a task file bring their own: leave it out; --max-input-len and --length-scale "
    "change a trace's";

constexpr std::array kFlags = {
    Flag{"trace-format", differs<&StreamFlags::trace_format>, from_trace, kNeedsTrace},
    Flag{"trace-block-size", differs<&StreamFlags::trace_block_size>, from_trace, kNeedsTrace},
    Flag{"trace-start", differs<&StreamFlags::trace_start>, from_trace, kNeedsTrace},
    Flag{"trace-duration", differs<&StreamFlags::trace_duration>, from_trace, kNeedsTrace},
    Flag{"trace-rate", differs<&StreamFlags::trace_rate>, from_trace, kNeedsTrace},
    Flag{"trace-speed", differs<&StreamFlags::trace_speed>, from_trace, kNeedsTrace},
    Flag{"length-scale", differs<&StreamFlags::length_scale>, from_trace, kNeedsTrace},
    Flag{"random-input-len", differs<&StreamFlags::random_input_len>, draws_prompts, kNeedsDrawn},
    Flag{"input-len-dist", differs<&StreamFlags::input_len_dist>, draws_prompts, kNeedsDrawn},
    Flag{"random-prefix-len", differs<&StreamFlags::random_prefix_len>, draws_prompts, kNeedsDrawn},
    Flag{"random-num-prefixes", differs<&StreamFlags::random_num_prefixes>, shares_beginnings,
         "it is about shared beginnings: give --random-prefix-len, or leave it out"},
    Flag{"random-output-len", differs<&StreamFlags::random_output_len>, draws_lengths, kNeedsDrawn},
    Flag{"output-len-dist", differs<&StreamFlags::output_len_dist>, draws_lengths, kNeedsDrawn},
    Flag{"random-range-ratio", differs<&StreamFlags::random_range_ratio>, draws_lengths,
         kNeedsDrawn},
    Flag{
        "burstiness", differs<&StreamFlags::burstiness>, has_random_gaps,
        "it shapes the gaps of --arrivals poisson at a finite --request-rate: give these, or leave "
        "it out"},
    Flag{"burst-every", differs<&StreamFlags::burst_every>, in_bursts,
         "it is about --arrivals bursts: give that and --burst-rates, or leave it out"},
    Flag{"burst-rates", differs<&StreamFlags::burst_rates>, in_bursts,
         "it is about --arrivals bursts: give that, or leave it out"},
    Flag{"request-rate", differs<&StreamFlags::request_rate>, has_a_rate,
         "the times come from the trace or from --burst-rates: leave it out; --trace-speed and "
         "--trace-rate change a trace's"}};

}  // namespace

Status check_load_flags(const std::vector<StreamFlags>& flags,
                        const std::vector<loadgen::LoadStream>& streams) {
  for (const Flag& flag : kFlags) {
    bool changed = false;
    bool used = false;
    for (size_t i = 0; i < flags.size(); ++i) {
      changed = changed || flag.changed(flags[i]);
      used = used || (flag.changed(flags[i]) && flag.used(streams[i]));
    }
    if (changed && !used) {
      return invalid_argument(fmt::format("--{} would have no effect: {}", flag.name, flag.cure),
                              flag.name);
    }
  }
  return {};
}

}  // namespace tandem::bench
