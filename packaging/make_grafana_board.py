#!/usr/bin/env python3
"""Writes packaging/grafana.json, the Grafana board for both metric sets of a Tandem server.

One description gives every panel twice: for `tandem_*` and for `vllm:*`, in a row each, so that a fleet of both servers is seen with
one board. Metrics that only Tandem has stand in a row of their own.

Usage: packaging/make_grafana_board.py [--check]   --check: fail if the file is not what would be written
"""
import json
import pathlib
import sys

OUT = pathlib.Path(__file__).with_name("grafana.json")
INSTANCE = '{instance=~"$instance"}'
MODEL = '{model_name=~"$model",instance=~"$instance"}'


def rate(name, by=""):
    return f"sum{by}(rate({name}{MODEL}[$__rate_interval]))"


def quantiles(name):
    return [(f"histogram_quantile({q}, sum by (le) (rate({name}_bucket{MODEL}[$__rate_interval])))", f"p{round(q * 100)}") for q in (0.5, 0.9, 0.99)]


def by_class(name):
    return f"histogram_quantile(0.99, sum by (le, class) (rate({name}_bucket{MODEL}[$__rate_interval])))", "{{class}}"


def common(p, names):
    """The panels both sets have; `names` gives the words in which the sets differ."""
    return [
        ("Requests running and waiting", "short", [(f"sum({p}{names['running']}{MODEL})", "running"), (f"sum({p}{names['waiting']}{MODEL})", "waiting")]),
        ("KV blocks held", "percentunit", [(f"max({p}{names['kv']}{MODEL})", "share")]),
        ("Tokens per second", "short", [(rate(f"{p}prompt_tokens_total"), "prompt"), (rate(f"{p}generation_tokens_total"), "output")]),
        ("Finished requests per second", "reqps", [(rate(f"{p}{names['finished']}", " by (finished_reason) "), "{{finished_reason}}")]),
        ("Time to first token", "s", quantiles(f"{p}time_to_first_token_seconds")),
        ("Time between tokens", "s", quantiles(f"{p}inter_token_latency_seconds")),
        ("Time in the queue", "s", quantiles(f"{p}request_queue_time_seconds")),
        ("Whole request", "s", quantiles(f"{p}e2e_request_latency_seconds")),
        ("Prefix cache: share of prompt tokens found", "percentunit",
         [(f"{rate(f'{p}prefix_cache_hits_total')} / {rate(f'{p}prefix_cache_queries_total')}", "hits")]),
        ("Preemptions per second", "short", [(rate(f"{p}{names['preempted']}"), "preemptions")]),
    ]


TANDEM = common("tandem_", {"running": "requests_running", "waiting": "requests_waiting", "kv": "kv_usage_ratio",
                            "finished": "requests_total", "preempted": "preemptions_total"})
VLLM = common("vllm:", {"running": "num_requests_running", "waiting": "num_requests_waiting", "kv": "kv_cache_usage_perc",
                        "finished": "request_success_total", "preempted": "num_preemptions_total"})
CLASSES = [
    ("Time to first token, p99 by class", "s", [by_class("tandem_time_to_first_token_seconds")]),
    ("Time between tokens, p99 by class", "s", [by_class("tandem_inter_token_latency_seconds")]),
    ("Choices with targets per second", "reqps", [(rate("tandem_slo_requests_total", " by (class, outcome) "), "{{class}} {{outcome}}")]),
    ("Missed targets per second", "reqps", [(rate("tandem_slo_misses_total", " by (class, target) "), "{{class}} {{target}}")]),
]
PROMISES = [
    ("Admission decisions per second", "reqps",
     [(rate("tandem_admission_decisions_total", " by (answer, reason) "), "{{answer}} {{reason}}")]),
    ("Promised first tokens that came late, per second", "reqps", [(rate("tandem_promised_ttft_late_seconds_count"), "late")]),
    ("Lateness of these", "s", quantiles("tandem_promised_ttft_late_seconds")),
    ("Error of the forecast TTFT", "percentunit", quantiles("tandem_ttft_forecast_error_ratio")),
    ("Error of the step time model, median by regime", "percentunit",
     [(f"histogram_quantile(0.5, sum by (le, regime) (rate(tandem_step_time_error_ratio_bucket{MODEL}[$__rate_interval])))", "{{regime}}")]),
    ("Correction of the step time model", "short", [(f"avg by (regime) (tandem_step_time_correction{MODEL})", "{{regime}}")]),
]
TIERS = [
    ("Sequences: running and offloaded", "short",
     [(f"sum(tandem_requests_running{MODEL})", "running"), (f"sum(tandem_offloaded_sequences{MODEL})", "offloaded")]),
    ("KV blocks of the host", "short", [(f"sum(tandem_host_kv_blocks{MODEL})", "all"), (f"sum(tandem_host_kv_blocks_in_use{MODEL})", "held")]),
    ("What limits offloaded decoding", "short", [(f"sum by (regime) (tandem_regime{MODEL})", "{{regime}}")]),
    ("Hops per second, and doubted ones", "short", [(rate("tandem_hops_total"), "hops"), (rate("tandem_hop_doubts_total"), "doubted")]),
    ("Bytes between the tiers per second", "Bps",
     [(rate("tandem_tier_transfer_bytes_total", " by (direction) "), "KV {{direction}}"), (rate("tandem_hop_bytes_total", " by (direction) "), "hops {{direction}}")]),
    ("Workers lost, host suspended", "short", [(f"sum(tandem_host_workers_lost{MODEL})", "workers lost"), (f"sum(tandem_host_suspended{MODEL})", "suspended")]),
]
GPU = [
    ("Memory of the GPU", "bytes", [(f"tandem_accelerator_memory_bytes{INSTANCE}", "all {{instance}} {{device}}"),
                                    (f"tandem_accelerator_memory_used_bytes{INSTANCE}", "in use {{instance}} {{device}}")]),
    ("Time in which a kernel ran, or memory was used", "percentunit", [(f"tandem_accelerator_busy_share{INSTANCE}", "kernels {{instance}} {{device}}"),
                                                                       (f"tandem_accelerator_memory_busy_share{INSTANCE}", "memory {{instance}} {{device}}")]),
    ("Power", "watt", [(f"tandem_accelerator_power_watts{INSTANCE}", "{{instance}} {{device}}")]),
    ("Temperature", "celsius", [(f"tandem_accelerator_temperature_celsius{INSTANCE}", "{{instance}} {{device}}")]),
    ("Clock of the processors", "hertz", [(f"tandem_accelerator_clock_hertz{INSTANCE}", "{{instance}} {{device}}")]),
]
SERVER = [
    ("Step time", "s", quantiles("tandem_step_seconds")),
    ("Engine's own work in a step", "s", quantiles("tandem_engine_work_seconds")),
    ("HTTP answers per second", "reqps", [(f"sum by (status) (rate(http_requests_total{INSTANCE}[$__rate_interval]))", "{{status}}")]),
    ("Refused per second", "reqps", [(f"sum by (reason) (rate(tandem_http_rejected_total{INSTANCE}[$__rate_interval]))", "{{reason}}")]),
    ("Connections and answers under way", "short", [(f"sum(tandem_http_connections{INSTANCE})", "connections"), (f"sum(tandem_http_generations{INSTANCE})", "answers")]),
    ("Clients that left or did not read", "short", [(f"sum(rate(tandem_http_disconnect_cancels_total{INSTANCE}[$__rate_interval]))", "left"),
                                                    (f"sum(rate(tandem_http_slow_readers_cut_total{INSTANCE}[$__rate_interval]))", "cut")]),
    ("Resident memory", "bytes", [(f"process_resident_memory_bytes{INSTANCE} and on (instance) tandem_build_info{INSTANCE}", "{{instance}}")]),
    ("CPUs in use", "short", [(f"rate(process_cpu_seconds_total{INSTANCE}[$__rate_interval]) and on (instance) tandem_build_info{INSTANCE}", "{{instance}}")]),
    ("Builds", "short", [(f"count by (version, commit) (tandem_build_info{INSTANCE})", "{{version}} {{commit}}")]),
]
BATCHES = [
    ("Batches that have not ended", "short",
     [("sum by (state) (tandem_batches{instance=~\"$instance\",state=~\"validating|in_progress|finalizing|cancelling\"})", "{{state}}"),
      (f"sum(tandem_batches_paused{INSTANCE})", "paused")]),
    ("Lines answered per second", "reqps", [(f"sum by (outcome) (rate(tandem_batch_lines_total{INSTANCE}[$__rate_interval]))", "{{outcome}}")]),
    ("Space of files", "bytes", [(f"sum(tandem_batch_storage_used_bytes{INSTANCE})", "used"), (f"sum(tandem_batch_storage_limit_bytes{INSTANCE})", "limit")]),
]


def panels():
    out, y = [], 0
    for title, row in (("Tandem", TANDEM), ("Classes", CLASSES), ("Promises and the model of time (policy omniserve)", PROMISES),
                       ("Two tiers", TIERS), ("GPU, as its driver says", GPU), ("Batches (--data-folder)", BATCHES), ("Server", SERVER), ("vLLM's names", VLLM)):
        out.append({"type": "row", "title": title, "id": len(out) + 1, "collapsed": False, "panels": [], "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}})
        y += 1
        for index, (name, unit, targets) in enumerate(row):
            out.append({
                "type": "timeseries", "title": name, "id": len(out) + 1,
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "gridPos": {"h": 8, "w": 8, "x": 8 * (index % 3), "y": y + 8 * (index // 3)},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                "targets": [{"refId": chr(ord("A") + i), "expr": expression, "legendFormat": legend} for i, (expression, legend) in enumerate(targets)],
            })
        y += 8 * ((len(row) + 2) // 3)
    return out


def board():
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
        {"name": "model", "type": "query", "label": "Model", "datasource": {"type": "prometheus", "uid": "${datasource}"},
         "query": "label_values({__name__=~\"tandem_requests_running|vllm:num_requests_running\"}, model_name)", "includeAll": True, "multi": True,
         "allValue": ".*", "current": {"text": "All", "value": "$__all"}, "refresh": 2},
        {"name": "instance", "type": "query", "label": "Instance", "datasource": {"type": "prometheus", "uid": "${datasource}"},
         "query": "label_values({__name__=~\"tandem_requests_running|vllm:num_requests_running\",model_name=~\"$model\"}, instance)",
         "includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}, "refresh": 2},
    ]
    return {"uid": "tandem", "title": "Tandem", "tags": ["llm"], "schemaVersion": 39, "editable": True, "refresh": "10s",
            "time": {"from": "now-30m", "to": "now"}, "templating": {"list": variables}, "panels": panels()}


def main(argv):
    text = json.dumps(board(), indent=1) + "\n"
    if argv[1:] == ["--check"]:
        if not OUT.is_file() or OUT.read_text() != text:
            print("packaging/grafana.json is out of date; run packaging/make_grafana_board.py", file=sys.stderr)
            return 1
        return 0
    if argv[1:]:
        print(__doc__.strip())
        return 0 if argv[1] in ("-h", "--help") else 2
    OUT.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
