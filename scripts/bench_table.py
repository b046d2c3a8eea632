#!/usr/bin/env python3
"""Prints what scripts/bench.sh measured: Tandem beside llama.cpp and oneDNN, and each kernel beside its ceiling.

Usage: scripts/bench_table.py FOLDER   (with model.*.json, and llama_cpp.*.json, kernels.json, onednn.json where measured)
Ratios are of medians of one run; above 1 Tandem is faster.
"""
import json
import pathlib
import statistics
import sys


def load(folder, pattern):
    return [json.loads(path.read_text()) for path in sorted(folder.glob(pattern))]


def model_rows(folder):
    ours = load(folder, "model.*.json")
    peers = load(folder, "llama_cpp.*.json")
    if not ours:
        return
    peer = {}
    for run in peers:
        for row in run["results"]:
            peer.setdefault((row["test"], row.get("batch", 1)), []).append(row["tokens_per_s"])
    rows = {}
    for run in ours:
        for row in run["rows"]:
            rows.setdefault(("prefill", 1) if row["batch"] == 1 else None, []).append(row["prefill_tokens_per_second"])
            rows.setdefault(("decode", row["batch"]), []).append(row["decode_tokens_per_second"])
    rows.pop(None, None)
    print(f"{'tokens/s':24} {'Tandem':>10} {'llama.cpp':>10} {'ratio':>7}")
    for key, values in rows.items():
        mine = statistics.median(values)
        name = f"{key[0]}, batch {key[1]}"
        if key in peer:
            theirs = statistics.median(peer[key])
            print(f"{name:24} {mine:10.1f} {theirs:10.1f} {mine / theirs:7.2f}")
        else:
            print(f"{name:24} {mine:10.1f}")


def kernel_rows(folder):
    runs = load(folder, "kernels.json")
    if not runs:
        return
    onednn = {}
    for run in load(folder, "onednn.json"):
        for row in run["results"]:
            onednn[(row["shape"], row["m"])] = row["median_us"] * 1e-6
    print(f"\n{'kernel':16} {'rows':>6} {'of ceiling':>10} {'over oneDNN':>12}")
    for row in runs[0]["rows"]:
        peer = onednn.get((row["op"], row["rows"]))
        ratio = f"{peer / row['measured_seconds']:12.2f}" if peer else ""
        print(f"{row['op']:16} {row['rows']:6} {row['ratio']:10.2f} {ratio}")


def main():
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    model_rows(folder)
    kernel_rows(folder)


if __name__ == "__main__":
    main()
