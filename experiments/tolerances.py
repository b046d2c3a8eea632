#!/usr/bin/env python3
"""Best-effort throughput under a tolerance of an online metric: `hygen` beside its baseline `hygen_star`, on the simulated machine.

Usage: experiments/tolerances.py NAME [--binary TANDEM] [--jobs N] [--keep FOLDER]

For each metric, tolerance and policy `tandem tune` finds the setting with the load of experiments/NAME/scenario.yaml; then the same scenario with
arrivals and lengths drawn anew (--load-seed 2) is run with it, with and without best effort. Writes experiments/NAME/result.csv and prints a table.
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
COLUMNS = ["metric", "tolerance", "policy", "setting", "without_ms", "allowed_ms", "metric_ms", "offline_tokens_per_s", "other_load_ratio",
           "other_load_offline_tokens_per_s"]


def value(result, metric):
    online = next(one for one in result["tandem"]["classes"] if one["name"] == "online")
    times, which = METRICS[metric]
    return online[times]["mean"] if which == "mean" else online[times]["percentiles"][which]


def simulate(flags, folder, scenario, *options):
    done = subprocess.run([flags.binary, "simulate", scenario, "--load-seed", "2", *options, "-o", folder], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{folder.name}: {done.stderr.strip()}")
    return json.loads((folder / "result.json").read_text())


def run_cell(flags, keep, alone, metric, tolerance, policy):
    scenario, field, option = HERE / flags.name / "scenario.yaml", *POLICIES[policy]
    folder = keep / f"{metric}-{tolerance}-{policy}"
    folder.mkdir(parents=True, exist_ok=True)
    row = dict.fromkeys(COLUMNS, "") | {"metric": metric, "tolerance": tolerance, "policy": policy}
    out = folder / "tuned.json"
    done = subprocess.run([flags.binary, "tune", scenario, "--policy", policy, "--metric", metric, "--tolerance", str(tolerance), "-o", out],
                          capture_output=True, text=True, check=False)
    if done.returncode == 2 and "keeps the tolerance" in done.stdout + done.stderr:
        return row | {"setting": "out of reach"}
    if done.returncode:
        raise RuntimeError(f"{folder.name}: {done.stderr.strip()}")
    tuned = json.loads(out.read_text())
    without = tuned["without_best_effort"][f"{metric}_ms"]
    other = simulate(flags, folder / "other", scenario, "--policy", policy, f"--{option}", str(tuned[field]))
    offline = next(one for one in other["tandem"]["classes"] if one["name"] == "offline")
    return row | {"setting": tuned[field], "without_ms": round(without, 3), "allowed_ms": round(without * (1 + tolerance / 100), 3),
                  "metric_ms": round(tuned["with_budget"][f"{metric}_ms"], 3),
                  "offline_tokens_per_s": round(tuned["with_budget"]["best_effort_tokens_per_s"], 1),
                  "other_load_ratio": round(value(other, metric) / value(alone, metric), 3),
                  "other_load_offline_tokens_per_s": round(offline["output_throughput"], 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("name", help="a folder of experiments/ with a scenario.yaml")
    parser.add_argument("--binary", default="build/release/tandem")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--keep", type=pathlib.Path, help="keep the runs there")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        keep = flags.keep or pathlib.Path(scratch)
        only_online = keep / "online.yaml"
        keep.mkdir(parents=True, exist_ok=True)
        lines = (HERE / flags.name / "scenario.yaml").read_text().splitlines()
        only_online.write_text("\n".join(line for line in lines if "name: offline" not in line) + "\n")
        alone = simulate(flags, keep / "online", only_online, "--policy", "sarathi_pp")
        cells = [(metric, tolerance, policy) for metric in METRICS for tolerance in TOLERANCES for policy in POLICIES]
        rows = list(pool.map(lambda cell: run_cell(flags, keep, alone, *cell), cells))
    with open(HERE / flags.name / "result.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print("| metric, tolerance | " + " | ".join(f"{policy}: setting, offline tokens/s, other load" for policy in POLICIES) + " | ratio |\n|---|---|---|---|")
    for first, second in zip(rows[::2], rows[1::2]):
        shown = [f"{row['setting']}, {row['offline_tokens_per_s']}, {row['other_load_ratio']}" for row in (first, second)]
        ratio = first["offline_tokens_per_s"] / second["offline_tokens_per_s"] if first["offline_tokens_per_s"] and second["offline_tokens_per_s"] else "-"
        print(f"| {first['metric']}, {first['tolerance']} % | {shown[0]} | {shown[1]} | {ratio if ratio == '-' else f'{ratio:.2f}'} |")


if __name__ == "__main__":
    main()
