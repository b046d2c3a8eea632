#!/usr/bin/env python3
"""What a server without any flags does for chat beside a flood of best effort, over HTTP, and a table of it.

    scripts/default_load.py OUT --model MODEL_DIR [--policy auto accel_only] [--runs 3] [--seconds 20]

Starts `tandem serve MODEL_DIR` (with `--policy` for every policy but `auto`), sends chat alone, then chat beside more best effort than the server
can take, with `tandem bench serve`. Runs of the policies are taken in turn. Results go to OUT; runs already there are kept. Each server sees an
empty cache folder, so `auto` finds no profile. The table gives the medians of the runs.
"""
import argparse
import json
import pathlib
import signal
import statistics
import subprocess

from served import served


def measure(flags, policy, load, run):
    name = f"{policy}-{load}-{run}"
    result = flags.out / f"{name}.json"
    if result.exists():
        return
    print(f"{name} ...", flush=True)
    chat = (f"name=chat;service-tier=priority;request-rate={flags.chat_rate};num-prompts={int(flags.chat_rate * flags.seconds)};"
            "random-input-len=64;random-output-len=32;random-range-ratio=0.5")
    flood = (f"name=flood;service-tier=flex;request-rate={flags.flood_rate};num-prompts={int(flags.flood_rate * flags.seconds)};"
             "random-input-len=512;random-output-len=64;random-range-ratio=0.5")
    streams = ["--stream", chat] + (["--stream", flood] if load == "beside" else [])
    plan = [] if policy == "auto" else ["--policy", policy]
    with open(flags.out / f"{name}.log", "w", encoding="utf-8") as log, served(flags.binary, flags.model, plan, log) as port:
        client = subprocess.Popen([flags.binary, "bench", "serve", "--port", str(port), *streams, "--save-result", "--result-dir", flags.out,
                                   "--result-filename", result.name, "--label", name], stdout=log, stderr=log)
        try:
            client.wait(3 * flags.seconds)
        except subprocess.TimeoutExpired:
            client.send_signal(signal.SIGINT)
            client.wait(30)


def figures(path):
    classes = {one["name"]: one for one in json.loads(path.read_text())["tandem"]["classes"]}
    chat = classes["chat"]
    ttft, tpot = chat["ttft_ms"]["percentiles"], chat["tpot_ms"]["percentiles"]
    flood = classes.get("flood")
    return {"ttft50": ttft["50"], "ttft99": ttft["99"], "tpot50": tpot["50"], "tpot99": tpot["99"], "done": chat["completed"], "planned": chat["planned"],
            "flood": flood["completed"] if flood else 0}


def table(flags):
    print("| policy, load | chat answered | TTFT P50, P99 (ms) | TPOT P50, P99 (ms) | P99 TTFT beside / alone | flood answered |")
    print("|---|---|---|---|---|---|")
    for policy in flags.policy:
        alone = None
        for load in ("alone", "beside"):
            runs = [figures(path) for path in sorted(flags.out.glob(f"{policy}-{load}-*.json"))]
            if not runs:
                continue
            middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            alone = middle["ttft99"] if load == "alone" else alone
            ratio = f"{middle['ttft99'] / alone:.1f}" if load == "beside" and alone else ""
            print(f"| {policy}, {load} | {middle['done']:.0f} of {middle['planned']:.0f} | {middle['ttft50']:.1f}, {middle['ttft99']:.1f} | "
                  f"{middle['tpot50']:.1f}, {middle['tpot99']:.1f} | {ratio} | {middle['flood']:.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--binary", default="build/release/tandem")
    parser.add_argument("--model", required=True)
    parser.add_argument("--policy", nargs="+", default=["auto", "accel_only"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--chat-rate", type=float, default=10, help="requests a second")
    parser.add_argument("--flood-rate", type=float, default=60, help="requests a second; more than the server can take")
    flags = parser.parse_args()
    flags.out.mkdir(parents=True, exist_ok=True)
    for run in range(flags.runs):
        for load in ("alone", "beside"):
            for policy in flags.policy:
                measure(flags, policy, load, run)
    table(flags)


if __name__ == "__main__":
    main()
