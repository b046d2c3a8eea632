#!/usr/bin/env python3
"""In how many windows of ten a budget that `tandem tune` found keeps a metric within its tolerance, on the simulated machine.

Usage: experiments/windows.py hygen-windows [--traces FOLDER] [--binary TANDEM] [--jobs N] [--keep FOLDER]

A window is ten minutes of the trace; `start` in the scenario is its first second. `tandem tune` finds a budget with all windows of the first thinning
of the trace; the windows of the second and third thinning are then run with it. Writes experiments/NAME/result.csv and prints a table. Runs that
--keep has already are not made again.
"""
import argparse
import concurrent.futures
import csv
import json
import os
import pathlib
import subprocess
import tempfile

from tolerances import METRICS, TOLERANCES, class_of, value

HERE = pathlib.Path(__file__).resolve().parent
STARTS = (0, 600, 1200, 1800, 2400)
WINDOWS = [(start, seed) for seed in (2, 3) for start in STARTS]


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr.strip()


def simulate(flags, folder, scenario, seed, *options):
    if (folder / "result.json").exists():
        return json.loads((folder / "result.json").read_text())
    code, errors = run(flags.binary, "simulate", scenario, "--load-seed", seed, *options, "-o", folder)
    if code:
        raise SystemExit(errors)
    return json.loads((folder / "result.json").read_text())


def read_scenario(flags):
    return (HERE / flags.name / "scenario.yaml").read_text().replace("{traces}", str(pathlib.Path(flags.traces).resolve()))


def scenarios(flags, folder, start):
    """The window with best effort and without."""
    text = read_scenario(flags).replace("{start}", str(start))
    alone = "\n".join(line for line in text.splitlines() if "name: offline" not in line) + "\n"
    paths = {}
    for name, content in (("both", text), ("alone", alone)):
        paths[name] = folder / f"{name}-{start}.yaml"
        paths[name].write_text(content)
    return paths


def all_windows(flags, folder):
    path = folder / "all.yaml"
    starts = ", ".join(f"{start}s" for start in STARTS)
    path.write_text(f"vary: {{stream.online.trace-start: [{starts}]}}\n" + read_scenario(flags).replace(", trace-start: {start}s", ""))
    return path


def cell(flags, folder, windows, alone, metric, tolerance):
    tuned = folder / f"{metric}-{tolerance}.json"
    code, errors = (0, "") if tuned.exists() else run(flags.binary, "tune", all_windows(flags, folder), "--jobs", 1, "--metric", metric, "--tolerance", tolerance, "-o", tuned)
    if code:
        return [{"metric": metric, "tolerance": tolerance, "budget": "out of reach", "error": errors.splitlines()[-1]}]
    found = json.loads(tuned.read_text())
    budget, flex_only = found["step_budget_us"], found.get("flex_only", False)
    rows = []
    for how, options in (("fixed", ["--hygen-step-budget", budget, "--step-budget-flex-only", int(flex_only)]), ("followed", ["--step-budget", tuned])):
        ratios, offline = [], []
        for start, seed in WINDOWS:
            out = folder / f"{metric}-{tolerance}-{how}-{start}-{seed}"
            result = simulate(flags, out, windows[start]["both"], seed, "--policy", "hygen", *options)
            ratios.append(value(result, metric) / value(alone[start, seed], metric))
            offline.append(class_of(result, "offline")["output_throughput"])
        rows.append({"metric": metric, "tolerance": tolerance, "budget": f"{budget / 1000:.1f} ms" + (" (best effort)" if flex_only else ""), "tuned_tokens_per_s": f"{found['best_effort_tokens_per_s']:.0f}", "how": how,
                     "kept": sum(ratio <= 1 + tolerance / 100 for ratio in ratios), "worst": f"{max(ratios):.3f}", "median": f"{sorted(ratios)[len(ratios) // 2]:.3f}",
                     "offline_tokens_per_s": f"{sum(offline) / len(offline):.0f}"})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--traces", default=pathlib.Path(os.environ.get("TANDEM_SHARED", "../shared")) / "traces")
    parser.add_argument("--binary", default=HERE.parent / "build/release/tandem")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the runs")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        folder = flags.keep or pathlib.Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        windows = {start: scenarios(flags, folder, start) for start, _ in WINDOWS}
        alone = {(start, seed): simulate(flags, folder / f"alone-{start}-{seed}", windows[start]["alone"], seed, "--policy", "hygen", "--step-budget", "2s")
                 for start, seed in WINDOWS}
        cells = [pool.submit(cell, flags, folder, windows, alone, metric, tolerance) for metric in METRICS for tolerance in TOLERANCES]
        rows = [row for each in cells for row in each.result()]
    columns = ["metric", "tolerance", "budget", "tuned_tokens_per_s", "how", "kept", "worst", "median", "offline_tokens_per_s", "error"]
    with (HERE / flags.name / "result.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print(" | ".join(str(row.get(column, "")) for column in columns))


if __name__ == "__main__":
    main()
