#!/usr/bin/env python3
"""Prints what scripts/bench.sh measured: Tandem beside llama.cpp, OpenVINO GenAI and oneDNN, and each kernel beside its ceiling.

Usage: scripts/bench_table.py FOLDER   (with model.*.json, and llama_cpp.*.json, long.*.json, openvino.*.*.json, kernels.json,
                                        onednn.json where measured)
Ratios are of medians of one run; above 1 Tandem is faster.
"""
import json
import pathlib
import statistics
import sys


def load(folder, pattern):
    return [json.loads(path.read_text()) for path in sorted(folder.glob(pattern))]


def describe(runs):
    """Program, version, machine and date of the peers."""
    for run in runs[:1]:
        kind = f", computes in {run['inference_type']}" if "inference_type" in run else ""
        print(f"# {run['program']} {run['version']}{kind}; {run['machine']['cpu']}, {run['threads']} threads, {run['date'][:10]}")


def model_rows(folder):
    ours = load(folder, "model.*.json")
    peers = load(folder, "llama_cpp.*.json")
    if not ours:
        return
    describe(peers)
    peer = {}
    for run in peers:
        for row in run["results"]:
            key = row["weights"], row["test"], row.get("batch", 1)
            peer.setdefault(key, []).append(row["tokens_per_s"])
    types = list(dict.fromkeys(key[0] for key in peer))
    rows = {}
    for run in ours:
        for row in run["rows"]:
            rows.setdefault(("prefill", 1) if row["batch"] == 1 else None, []).append(row["prefill_tokens_per_second"])
            rows.setdefault(("decode", row["batch"]), []).append(row["decode_tokens_per_second"])
    rows.pop(None, None)
    print(f"{'tokens/s':24} {'Tandem':>10}" + "".join(f" {'llama.cpp ' + name:>15} {'ratio':>7}" for name in types))
    for key, values in rows.items():
        mine = statistics.median(values)
        line = f"{f'{key[0]}, batch {key[1]}':24} {mine:10.1f}"
        for name in types:
            if (name, *key) in peer:
                theirs = statistics.median(peer[name, *key])
                line += f" {theirs:15.1f} {mine / theirs:7.2f}"
        print(line)


def long_rows(folder):
    ours = load(folder, "long.*.json")
    if not ours:
        return
    peers = load(folder, "openvino.*.*.json")
    print()
    describe(peers)
    peer = {}
    for run in peers:
        for row in run["results"]:
            peer.setdefault((row["mlp"], row["batch"]), []).append(row)
    forms = list(dict.fromkeys(form for form, _ in peer))
    times = {}
    for run in ours:
        for row in run["rows"]:
            if row["batch"] == 1:
                times.setdefault(("TTFT", 1), []).append(1e3 * run["prompt_tokens"] / row["prefill_tokens_per_second"])
            times.setdefault(("TPOT", row["batch"]), []).append(1e3 * row["batch"] / row["decode_tokens_per_second"])
    print(f"{'ms, prompts of 1024':24} {'Tandem':>10}" + "".join(f" {'OpenVINO, MLP ' + form:>20} {'ratio':>7}" for form in forms))
    for (test, batch), values in times.items():
        mine = statistics.median(values)
        line = f"{f'{test}, batch {batch}':24} {mine:10.1f}"
        for form in forms:
            if (form, batch) in peer:
                theirs = statistics.median(row["ttft_ms" if test == "TTFT" else "tpot_ms"] for row in peer[form, batch])
                line += f" {theirs:20.1f} {theirs / mine:7.2f}"
        print(line)


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
    long_rows(folder)
    kernel_rows(folder)


if __name__ == "__main__":
    main()
