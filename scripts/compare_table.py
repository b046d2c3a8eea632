"""Figures and Markdown of scripts/compare_servers.py."""
import os
import pathlib
import platform
import statistics

NAMES = {"tandem": "Tandem", "tandem-slo": "Tandem with targets", "llama-server": "llama-server", "vllm": "vLLM"}
# key, text, decimals, whether more or less is better (None: neither)
ROWS = [("attainment", "chat within its targets (% of all requests)", 1, "more"), ("goodput", "goodput of chat (requests/s)", 2, "more"),
        *((f"{name}_{metric}_{percent}", f"{name}: {metric.upper()} P{percent} (ms)", 1, "less")
          for name in ("chat", "bulk") for metric in ("ttft", "tpot") for percent in (50, 99)),
        *((f"{name}_tokens_s", f"{name}: output tokens/s", 1, "more") for name in ("chat", "bulk")),
        *((f"{name}_{outcome}", f"{name}: {text}", 0, None) for name in ("chat", "bulk")
          for outcome, text in (("answered", "answered"), ("refused", "refused"), ("timed_out", "timed out or cut off"), ("otherwise", "failed otherwise"))),
        ("peak_mib", "peak memory (RSS, MiB)", 0, "less"), ("load_s", "start to ready (s)", 2, "less")]
REFUSALS = ("http_429", "http_503")


def machine():
    cpu = platform.machine()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "memory_gib": round(memory / 2**30, 1), "kernel": platform.release()}


def figures(result, seconds):
    """What one run says, of the result of `tandem bench serve`. `seconds`: of arrivals."""
    row = {"generator_late_p99_ms": result["tandem"]["generator"]["lateness_ms"]["percentiles"]["99"], "warnings": result["tandem"]["warnings"]}
    for group in result["tandem"]["classes"]:
        name, reasons = group["name"], group["failures"]
        refused = sum(reasons.get(reason, 0) for reason in REFUSALS)
        # Requests that were cut off at the end of the run had been waiting for longer than --timeout.
        timed_out = reasons.get("timeout", 0) + group["interrupted"] + group["planned"] - group["sent"]
        row |= {f"{name}_planned": group["planned"], f"{name}_answered": group["completed"], f"{name}_refused": refused, f"{name}_timed_out": timed_out,
                f"{name}_otherwise": group["planned"] - group["completed"] - refused - timed_out, f"{name}_reasons": reasons,
                f"{name}_tokens_s": group["output_throughput"]}
        for metric in ("ttft", "tpot"):
            for percent in ("50", "99"):
                row[f"{name}_{metric}_{percent}"] = group[f"{metric}_ms"]["percentiles"][percent]
        if name == "chat":
            row["attainment"] = 100 * group["good"] / group["planned"]
            row["goodput"] = group["good"] / seconds
    return row


def number(value, decimals):
    return f"{value:,.{decimals}f}"


def one_line(row):
    ttft = row["chat_ttft_99"]
    return (f"chat {row['attainment']:.1f} % within targets, TTFT P99 {'-' if ttft is None else number(ttft, 0) + ' ms'}, "
            f"bulk {row['bulk_answered']} of {row['bulk_planned']} answered")


def middle(runs, key):
    values = [run[key] for run in runs if run.get(key) is not None]
    return statistics.median(values) if values else None


def cell(runs, key, decimals, base):
    """Median (least..most), and the ratio to `base`, the median of the first column."""
    values = [run[key] for run in runs if run.get(key) is not None]
    if not values:
        return "failed" if any("failure" in run for run in runs) else "-"
    text = number(statistics.median(values), decimals)
    if min(values) != max(values):
        text += f" ({number(min(values), decimals)}..{number(max(values), decimals)})"
    if base:
        text += f" ×{statistics.median(values) / base:.2f}"
    failed = sum("failure" in run for run in runs)
    return text + (f" [{failed} of {len(runs)} failed]" if failed else "")


def planned(runs, key):
    """Of how many, which is the same for every server."""
    count = middle(runs, key.replace("answered", "planned"))
    return "" if count is None else f", of {count:.0f}"


def markdown(report, servers):
    by_server = {name: [run for run in report["runs"] if run["server"] == name] for name in servers}
    load, where = report["load"], report["machine"]
    lines = ["**A trial, not a measurement.**", ""] if report["quick"] else []
    lines += [f"{report['date'][:10]}, {where['cpu']}, {where['cores']} cores, {where['memory_gib']} GiB. Load average before {report['load_average']['before']:.1f}. "
              f"{load['runs']} runs in turn, each {load['seconds']:g} s of arrivals: chat {load['chat_rate']:g}/s of {load['chat_tokens'][0]} + {load['chat_tokens'][1]} tokens "
              f"(targets: TTFT {load['ttft_ms']} ms, TPOT {load['tpot_ms']} ms), bulk {load['bulk_rate']:g}/s of {load['bulk_tokens'][0]} + {load['bulk_tokens'][1]} tokens; "
              f"lengths vary by half. Clients give up after {load['timeout']:g} s without a byte. "
              f"Cells: median (min..max){' ×ratio to ' + NAMES[servers[0]] if len(servers) > 1 else ''}.", "",
              "| | " + " | ".join(NAMES[name] for name in servers) + " |", "|---|" + "---|" * len(servers)]
    for key, text, decimals, better in ROWS:
        base = middle(by_server[servers[0]], key) if better else None
        cells = [cell(by_server[name], key, decimals, base if name != servers[0] else None) for name in servers]
        note = f", {better} is better" if better else planned(report["runs"], key) if key.endswith("_answered") else ""
        lines.append(f"| {text}{note} | " + " | ".join(cells) + " |")
    lines.append("")
    for name in servers:
        lines.append(f"- {NAMES[name]}: {report['versions'][name]}; `{' '.join(shown(part) for part in by_server[name][0]['command'])}`")
    lines += [f"- {reason}." for reason in report["not_measured"].values()]
    lines += [f"- {NAMES[run['server']]}, run {run['run'] + 1}: {run['failure']}." for run in report["runs"] if "failure" in run]
    lines += sorted({f"- {NAMES[run['server']]}: {warning}" for run in report["runs"] for warning in run.get("warnings", [])})
    lines.append("- Output tokens/s count whole answers, over the time from the first request to the last answer. Goodput is over the seconds of arrivals.")
    return "\n".join(lines) + "\n"


def shown(part):
    """An argument without the folder of this machine."""
    return pathlib.Path(part).name if part.startswith("/") else part
