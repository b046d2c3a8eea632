#!/usr/bin/env python3
"""Best-effort throughput under a tolerance of an online metric: `hygen` beside its baseline `hygen_star`, on the simulated machine.

Usage: experiments/tolerances.py NAME [--binary TANDEM] [--jobs N] [--keep FOLDER]

For each metric, tolerance and policy `tandem tune` finds the setting with the load of experiments/NAME/scenario.yaml; then the same scenario with
arrivals and lengths drawn anew (--load-seed 2) is run with it, with and without best effort.
Writes experiments/NAME/result.csv and prints a table.
experiments/NAME/cells.json may name other `metrics` (several that are kept together: "mean_tbt p99_ttft"), `tolerances` ("10 8": one for each) and `policies`, and a word in
braces of scenario.yaml that is varied: `name` and `values`. With `"sweep": true` there, budgets from 9 ms to 140 ms, each 3 % larger than the last, are run
with the first load, too: the most best-effort tokens within the tolerance are in the column `best_fixed_tokens_per_s`.
"""
import argparse
import concurrent.futures
import csv
import json
import os
import pathlib
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
METRICS = {"mean_tbt": ("itl_ms", "mean"), "p99_tbt": ("itl_ms", "99"), "mean_ttft": ("ttft_ms", "mean"), "p99_ttft": ("ttft_ms", "99")}
TOLERANCES = [5, 10, 20, 50]
POLICIES = {"hygen": ("step_budget_us", "hygen-step-budget"), "hygen_star": ("flex_rate", "flex-rate")}
CELLS = {"metrics": list(METRICS), "tolerances": TOLERANCES, "policies": list(POLICIES), "name": "", "values": [""], "sweep": False}
COLUMNS = ["metric", "tolerance", "policy", "setting", "flex_only", "without_ms", "allowed_ms", "metric_ms", "offline_tokens_per_s", "best_fixed_tokens_per_s",
           "other_load_ratio", "other_load_offline_tokens_per_s"]
FLEX_ONLY = "step-budget-flex-only"
BUDGETS_US = [round(9000 * 1.03 ** i) for i in range(94)]


def class_of(result, name):
    return next(one for one in result["tandem"]["classes"] if one["name"] == name)


def value(result, metric):
    online = class_of(result, "online")
    times, which = METRICS[metric]
    return online[times]["mean"] if which == "mean" else online[times]["percentiles"][which]


def lost(result):
    online = class_of(result, "online")
    return online["failed"] + online["interrupted"]


def simulate(flags, folder, scenario, *options):
    done = subprocess.run([flags.binary, "simulate", scenario, *options, "-o", folder], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{folder.name}: {done.stderr.strip()}")
    return json.loads((folder / "result.json").read_text())


def scenarios(flags, keep, cells, value):
    """The scenario with this value, and the same without best effort."""
    text = (HERE / flags.name / "scenario.yaml").read_text().replace("{" + cells["name"] + "}", str(value))
    online = "\n".join(line for line in text.splitlines() if "name: offline" not in line) + "\n"
    folder = keep / f"{cells['name']}{value}"
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "scenario.yaml", folder / "online.yaml"
    for path, content in zip(paths, (text, online)):
        path.write_text(content)
    return paths


def sweep(flags, folder, scenario, alone):
    """Each budget's ratios of the metrics to those without best effort, and its offline tokens/s."""
    path, out = folder / "sweep.yaml", folder / "sweep"
    path.write_text(scenario.read_text() + f"policy: hygen\nvary: {{hygen-step-budget: {BUDGETS_US}, {FLEX_ONLY}: [0, 1]}}\n")
    done = subprocess.run([flags.binary, "simulate", path, "--jobs", str(flags.jobs), "-o", out], capture_output=True, text=True, check=False)
    points = []
    for result in sorted((out / "points").glob("*/result.json")):  # a budget that is too small to serve by leaves none
        run = json.loads(result.read_text())
        points.append({metric: value(run, metric) / value(alone, metric) for metric in METRICS} |
                      {"tokens": class_of(run, "offline")["output_throughput"], "lost": lost(run) - lost(alone)})
    if not points:
        raise RuntimeError(f"{path}: {done.stderr.strip()}")
    return points


def best_fixed(points, metrics, tolerances):
    limits = dict(zip(metrics, tolerances * len(metrics) if len(tolerances) == 1 else tolerances))
    kept = [point["tokens"] for point in points if point["lost"] <= 0 and all(point[metric] <= 1 + float(limit) / 100 for metric, limit in limits.items())]
    return max(kept, default=0)


def run_cell(flags, folder, scenario, alone, points, metrics, tolerance, policy):
    field, option = POLICIES[policy]
    tolerances = str(tolerance).split()  # one for all metrics, or one for each
    folder = folder / f"{metrics.replace(' ', '-')}-{'-'.join(tolerances)}-{policy}"
    folder.mkdir(parents=True, exist_ok=True)
    row = dict.fromkeys(COLUMNS, "") | {"metric": metrics, "tolerance": tolerance, "policy": policy}
    out = folder / "tuned.json"
    done = subprocess.run([flags.binary, "tune", scenario, "--policy", policy, "--metric", *metrics.split(), "--tolerance", *tolerances, "-o", out],
                          capture_output=True, text=True, check=False)
    if done.returncode == 2 and "keeps the tolerance" in done.stdout + done.stderr:
        return row | {"setting": "out of reach"}
    if done.returncode:
        raise RuntimeError(f"{folder.name}: {done.stderr.strip()}")
    tuned = json.loads(out.read_text())
    metric = metrics.split()[0]
    without = tuned["without_best_effort"][f"{metric}_ms"]
    flex_only = tuned.get("flex_only", False)
    other = simulate(flags, folder / "other", scenario, "--load-seed", "2", "--policy", policy, f"--{option}", str(tuned[field]),
                     *([f"--{FLEX_ONLY}", "1"] if flex_only else []))
    offline = class_of(other, "offline")
    return row | {"setting": tuned[field], "flex_only": int(flex_only), "without_ms": round(without, 3), "allowed_ms": round(without * (1 + float(tolerances[0]) / 100), 3),
                  "metric_ms": round(tuned["with_budget"][f"{metric}_ms"], 3),
                  "offline_tokens_per_s": round(tuned["with_budget"]["best_effort_tokens_per_s"], 1),
                  "best_fixed_tokens_per_s": round(best_fixed(points, metrics.split(), tolerances), 1) if points and policy == "hygen" else "",
                  "other_load_ratio": round(value(other, metric) / value(alone, metric), 3),
                  "other_load_offline_tokens_per_s": round(offline["output_throughput"], 1)}


def setting_of(row):
    if row["setting"] == "out of reach":
        return row["setting"]
    shown = f"{row['setting'] / 1000:.2f}/s" if row["policy"] == "hygen_star" else f"{row['setting'] / 1000:.1f} ms"
    return shown + (" (best effort)" if row["flex_only"] else "")


def print_table(cells, rows):
    policies = cells["policies"]
    varied = f"{cells['name']}, " if cells["name"] else ""
    print(f"| {varied}metric, tolerance | " + " | ".join(f"{policy}: setting, offline tokens/s, metric on another load" for policy in policies) +
          " | ratio of offline tokens/s | of the best fixed budget |\n" + "|---" * (len(policies) + 3) + "|")
    for i in range(0, len(rows), len(policies)):
        group = rows[i:i + len(policies)]
        shown = [f"{setting_of(row)}, {row['offline_tokens_per_s']}, {row['other_load_ratio']}" for row in group]
        served = [row["offline_tokens_per_s"] for row in group]
        ratio = f"{served[0] / served[1]:.2f}" if len(served) > 1 and all(served[:2]) else "-"
        best = group[0]["best_fixed_tokens_per_s"]
        share = f"{served[0] / best:.3f}" if best and served[0] else "-"
        value_shown = f"{group[0]['value']}, " if cells["name"] else ""
        print(f"| {value_shown}{group[0]['metric']}, {group[0]['tolerance']} % | {' | '.join(shown)} | {ratio} | {share} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("name", help="a folder of experiments/ with a scenario.yaml")
    parser.add_argument("--binary", default="build/release/tandem")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--keep", type=pathlib.Path, help="keep the runs there")
    flags = parser.parse_args()
    path = HERE / flags.name / "cells.json"
    cells = CELLS | (json.loads(path.read_text()) if path.exists() else {})
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        running = []
        for varied in cells["values"]:
            scenario, online = scenarios(flags, flags.keep or pathlib.Path(scratch), cells, varied)
            alone = simulate(flags, scenario.parent / "online", online, "--load-seed", "2", "--policy", "sarathi_pp")
            points = sweep(flags, scenario.parent, scenario, simulate(flags, scenario.parent / "first", online, "--policy", "sarathi_pp")) if cells["sweep"] else []
            for metrics in cells["metrics"]:
                for tolerance in cells["tolerances"]:
                    for policy in cells["policies"]:
                        running.append((varied, pool.submit(run_cell, flags, scenario.parent, scenario, alone, points, metrics, tolerance, policy)))
        rows = [{"value": varied} | cell.result() for varied, cell in running]
    with open(HERE / flags.name / "result.csv", "w", encoding="utf-8", newline="") as file:
        columns = (["value"] if cells["name"] else []) + COLUMNS
        writer = csv.DictWriter(file, columns, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    print_table(cells, rows)


if __name__ == "__main__":
    main()
