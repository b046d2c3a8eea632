#!/usr/bin/env python3
"""Whether `neo_plus` and `apex_plus` take what pays best, lanes, overlap or the accelerator alone, on a grid of simulated machines.

Usage: experiments/choices.py [--jobs N] [--binary TANDEM] [--keep FOLDER] [--only POLICY ...]

Runs experiments/right-choice/decodes.yaml and mixed.yaml at each point of the grid, with forced forms and with the policies that choose. Prints a
table and writes experiments/right-choice/result.csv. With --only the rows of other policies in result.csv are kept. No packages needed.
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
FOLDER = HERE / "right-choice"
RATIOS = {1: 522, 2: 261, 5: 104, 10: 52, 20: 26, 40: 13}  # of the rates of attention: the host's GB/s
BLOCKS = {20: 310, 60: 930, 100: 1550}  # percent of the memory: blocks
LAYERS = 32
FORCED = {  # what is run for each form
    "resident": {"alone": ["--policy", "sarathi", "--sarathi-token-budget", "2048"]},
    "overlap": {"forced overlap": ["--policy", "apex_plus", "--apex-plus-form", "1"],
                "overlap": ["--policy", "overlap", "--piggyback-token-budget", "2048"]},
    "lanes": {"forced lanes": ["--policy", "apex_plus", "--apex-plus-form", "2"],
              "lanes": ["--policy", "lanes", "--piggyback-token-budget", "2048"]},
}
CHOOSING = {"neo_plus": ["--policy", "neo_plus"], "apex_plus": ["--policy", "apex_plus"]}
ALL = {name: options for runs in [*FORCED.values(), CHOOSING] for name, options in runs.items()}
WITHIN = 0.97
WINDOW = (100, 140)  # seconds that count: in all runs the host is full before, and the last slice of time is not whole
COLUMNS = ["load", "blocks_percent", "ratio", "policy", "tokens_per_s", "resident", "overlap", "lanes", "offloaded", "accelerator_busy",
           "host_busy", "predicted_within_8_percent", "idle_in_lanes"]


def grid():
    return [(load, blocks, ratio) for load in ("decodes", "mixed") for blocks in BLOCKS for ratio in RATIOS]


def run(flags, folder, point, policy):
    load, blocks, ratio = point
    folder.mkdir(parents=True, exist_ok=True)
    text = (FOLDER / f"{load}.yaml").read_text()
    text = text.replace('"{blocks}"', str(BLOCKS[blocks])).replace('"{gbps}"', str(RATIOS[ratio])).replace("shapes/", f"{HERE}/shapes/")
    scenario = folder / "scenario.yaml"
    scenario.write_text(text)
    done = subprocess.run([flags.binary, "simulate", scenario, *ALL[policy], "-o", folder], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{point}, {policy}: {done.stderr.strip()}")
    machine = json.loads((folder / "result.json").read_text())["tandem"]["machine"]
    with open(folder / "machine.csv", encoding="utf-8") as timeline:
        slices = [{key: float(cell) for key, cell in one.items()} for one in csv.DictReader(timeline)]
    late = [one for one in slices if WINDOW[0] <= one["begin_s"] < WINDOW[1]]
    mean = lambda value: sum(value(one) for one in late) / len(late)
    modes = machine.get("steps_by_mode", {})
    lanes = modes.get("lanes", {})
    share = lambda mode: modes.get(mode, {}).get("share", 0)
    return {"load": load, "blocks_percent": blocks, "ratio": ratio, "policy": policy,
            "tokens_per_s": mean(lambda one: one["resident_decode_tokens_per_s"] + one["hops_per_s"] / LAYERS),
            "resident": share("resident"), "overlap": share("overlap"), "lanes": share("lanes"), "offloaded": mean(lambda one: one["offloaded"]),
            "accelerator_busy": mean(lambda one: one["accelerator_busy"]), "host_busy": mean(lambda one: one["host_busy"]),
            "predicted_within_8_percent": lanes.get("predicted_within_8_percent", ""), "idle_in_lanes": lanes.get("median_accelerator_idle", "")}


def kept_rows(only):
    file = FOLDER / "result.csv"
    if not only or not file.exists():
        return []
    with open(file, encoding="utf-8", newline="") as table:
        return [row for row in csv.DictReader(table) if row["policy"] not in only]


def judge(rows):
    """A line for each point, and the points at which each choosing policy is right: of all forms, and of its own."""
    rates = {(row["load"], int(row["blocks_percent"]), int(row["ratio"]), row["policy"]): row for row in rows}
    right = {policy: [0, 0] for policy in CHOOSING}
    print(f"{'load':8} {'blocks':>6} {'ratio':>5}  {'alone':>6} {'overlap':>8} {'lanes':>6}  {'best':8}", end="")
    for policy in CHOOSING:
        print(f"  {policy:>10} {'of best':>8} {'res/over/lanes':>15}  right", end="")
    print()
    for point in grid():
        rate = lambda policy: float(rates[(*point, policy)]["tokens_per_s"])
        forms = {form: max(rate(policy) for policy in runs) for form, runs in FORCED.items()}
        best = max(forms, key=forms.get)
        print(f"{point[0]:8} {point[1]:>4} % {point[2]:>5}  {forms['resident']:>6.0f} {forms['overlap']:>8.0f} {forms['lanes']:>6.0f}  {best:8}", end="")
        for policy in CHOOSING:
            row = rates[(*point, policy)]
            shares = {form: float(row[form]) for form in FORCED}
            own = {form: value for form, value in forms.items() if policy == "apex_plus" or form != "overlap"}
            verdict = []
            for reference in (forms, own):
                chosen = max(shares, key=shares.get) == max(reference, key=reference.get)
                verdict.append(chosen or rate(policy) >= WITHIN * max(reference.values()))
            right[policy] = [count + good for count, good in zip(right[policy], verdict)]
            parts = "/".join(f"{100 * share:.0f}" for share in shares.values())
            print(f"  {rate(policy):>10.0f} {rate(policy) / forms[best]:>8.3f} {parts:>15}  {'yes' if verdict[0] else 'own' if verdict[1] else 'NO':5}", end="")
        print()
    for policy, (of_all, of_own) in right.items():
        print(f"{policy}: right in {of_all} of {len(grid())} points, of the forms that it has in {of_own}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--binary", default=str(HERE.parent / "build/release/tandem"))
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the results of every point")
    parser.add_argument("--only", nargs="+", choices=list(ALL), default=[], help="run these policies alone")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        keep = flags.keep or pathlib.Path(scratch)
        work = [pool.submit(run, flags, keep / "-".join(map(str, [*point, policy.replace(" ", "-")])), point, policy)
                for point in grid() for policy in flags.only or ALL]
        rows = [one.result() for one in work]
    rows = [{key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()} for row in rows] + kept_rows(flags.only)
    order = {key: number for number, key in enumerate((*point, policy) for point in grid() for policy in ALL)}
    rows.sort(key=lambda row: order[(row["load"], int(row["blocks_percent"]), int(row["ratio"]), row["policy"])])
    with open(FOLDER / "result.csv", "w", encoding="utf-8", newline="") as table:
        writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    judge(rows)


if __name__ == "__main__":
    main()
