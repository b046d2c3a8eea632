#!/usr/bin/env python3
"""The same load on the real engine and simulated, one tier, and a table of both.

    scripts/calibrate_simulation.py OUT --model MODEL_DIR [--policy sarathi] [--rates 4 8] [--requests 500] [--runs 3]

Measures what ops take on this machine (`tandem profile --op-times`, once for OUT), then for each rate serves MODEL_DIR and sends it a load with
`tandem bench serve`, and simulates the same load (`tandem simulate --op-times`). Results go to OUT; runs already there are kept. The table gives
medians of the real runs and the one simulated run. Leave the machine alone meanwhile: both sides are of this machine as it is now.
"""
import argparse
import json
import pathlib
import shlex
import statistics
import subprocess

from served import served

FIGURES = ["output tokens/s", "TTFT P50 ms", "TTFT P99 ms", "TPOT P50 ms", "TPOT P99 ms"]


def node_flags(flags):
    return ["--policy", flags.policy, *flags.node]


def load_flags(flags, rate):
    return ["--request-rate", str(rate), "--num-prompts", str(flags.requests), "--random-input-len", str(flags.input_len),
            "--random-output-len", str(flags.output_len), "--random-range-ratio", "0.5"]


def measure_ops(flags):
    ops = flags.out / "ops.json"
    if not ops.exists():
        print("measuring ops ...", flush=True)
        subprocess.run([flags.binary, "profile", flags.model, "-o", flags.out / "profile.json", "--op-times", ops, "--time", flags.time,
                        *flags.node, *flags.machine], check=True)
    return ops


def run_real(flags, rate, run):
    result = flags.out / f"real-{rate:g}-{run}.json"
    if not result.exists():
        print(f"{result.stem} ...", flush=True)
        with open(flags.out / f"{result.stem}.log", "w", encoding="utf-8") as log, \
                served(flags.binary, flags.model, node_flags(flags) + [*flags.machine, "--profile", str(flags.out / "profile.json")], log) as port:
            subprocess.run([flags.binary, "bench", "serve", "--port", str(port), *load_flags(flags, rate), "--num-warmups", "3", "--seed", "1",
                            "--save-result", "--result-dir", flags.out, "--result-filename", result.name], stdout=log, stderr=log, check=True)
    return result


def run_simulated(flags, rate, ops):
    folder = flags.out / f"simulated-{rate:g}"
    with open(flags.out / f"simulated-{rate:g}.log", "w", encoding="utf-8") as log:
        subprocess.run([flags.binary, "simulate", "--shape", flags.model, "--op-times", ops, *node_flags(flags), *load_flags(flags, rate),
                        "--load-seed", "1", "-o", folder], stdout=log, stderr=log, check=True)
    return folder / "result.json"


def figures(path):
    result = json.loads(path.read_text())
    one = result["tandem"]["classes"][0]
    ttft, tpot = one["ttft_ms"]["percentiles"], one["tpot_ms"]["percentiles"]
    return [result["output_throughput"], ttft["50"], ttft["99"], tpot["50"], tpot["99"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--binary", default="build/release/tandem")
    parser.add_argument("--model", required=True)
    parser.add_argument("--policy", default="sarathi")
    parser.add_argument("--rates", type=float, nargs="+", default=[4, 8], help="requests a second")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--input-len", type=int, default=128)
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--time", default="60s", help="for measuring ops")
    parser.add_argument("--node", type=shlex.split, default=[], help="flags of the server for both, such as '--node=--max-num-seqs 64'")
    parser.add_argument("--machine", type=shlex.split, default=[], help="flags of the real server alone, such as '--machine=--threads 1'")
    flags = parser.parse_args()
    flags.out.mkdir(parents=True, exist_ok=True)
    ops = measure_ops(flags)
    print("| requests/s | | " + " | ".join(FIGURES) + " |\n|---|---|" + "---|" * len(FIGURES))
    for rate in flags.rates:
        real = [figures(run_real(flags, rate, run)) for run in range(flags.runs)]
        middle = [statistics.median(column) for column in zip(*real)]
        simulated = figures(run_simulated(flags, rate, ops))
        for name, row in (("real", middle), ("simulated", simulated)):
            print(f"| {rate:g} | {name} | " + " | ".join(f"{value:.1f}" for value in row) + " |")
        print(f"| {rate:g} | simulated / real | " + " | ".join(f"{s / r:.2f}" for s, r in zip(simulated, middle)) + " |", flush=True)


if __name__ == "__main__":
    main()
