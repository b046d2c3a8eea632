#!/usr/bin/env python3
"""The same two tiers on the paced, hollow accelerator and simulated, and a table of both.

    scripts/calibrate_tiers.py OUT [--points 8B-512 ...] [--policies piggyback overlap lanes] [--seconds 4]

For each point `tandem bench tiers` runs in real time: one core plays the accelerator, one attends. Then `tandem simulate` runs the same residents and
offloaded sequences in virtual time, on an accelerator slowed down as much, beside a host as fast as the real workers were in that run. Results go to
OUT; real runs already there are kept. The table gives both and their ratio. Leave the machine alone meanwhile.
"""
import argparse
import csv
import json
import pathlib
import re
import subprocess

VOCABULARY = 32000
POINTS = {
    "34B-96": {"shape": "34B", "pace": "h200", "step-ms": 25, "offloaded": 256, "offloaded-prompt": 96, "link-gbps": 1.5},
    "8B-1024": {"shape": "8B", "pace": "h100", "step-ms": 7, "offloaded": 40, "offloaded-prompt": 1024, "link-gbps": 1},
    "8B-64-slow-link": {"shape": "8B", "pace": "h100", "step-ms": 7, "offloaded": 64, "offloaded-prompt": 64, "link-gbps": 0.04},
    "8B-512": {"shape": "8B", "pace": "h100", "step-ms": 7, "offloaded": 32, "offloaded-prompt": 512, "link-gbps": 1},
}
SHAPES = {
    "8B": {"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8},
    "34B": {"num_hidden_layers": 60, "hidden_size": 7168, "intermediate_size": 20480, "num_attention_heads": 56, "num_key_value_heads": 8},
}
HEAD_DIM, BLOCK_TOKENS = 128, 32
RESIDENTS, RESIDENT_PROMPT, OUTPUT = 16, 512, 32768


def run_real(flags, name, policy):
    result = flags.out / f"real-{name}-{policy}.json"
    if not result.exists():
        print(f"{result.stem} ...", flush=True)
        point = [word for key, value in POINTS[name].items() for word in (f"--{key}", str(value))]
        with open(flags.out / f"{result.stem}.log", "w", encoding="utf-8") as log:
            subprocess.run([flags.binary, "bench", "tiers", *point, "--policy", policy, "--group-stages", str(flags.group_stages), "--seconds",
                            str(flags.seconds), "--rounds", "1", "--vocab", str(VOCABULARY), "--json", result],
                           stdout=log, stderr=subprocess.STDOUT, check=True)
    return json.loads(result.read_text())


def shape_folder(flags, shape):
    """A folder with nothing but a config.json: no weights are needed."""
    folder = flags.out / f"shape-{shape}"
    folder.mkdir(exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "head_dim": HEAD_DIM, "vocab_size": VOCABULARY, "rope_theta": 500000.0,
              "max_position_embeddings": OUTPUT + 2048, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
              "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2, **SHAPES[shape]}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def run_simulated(flags, name, policy, real):
    point = POINTS[name]
    folder = flags.out / f"simulated-{name}-{policy}"
    seqs = RESIDENTS + point["offloaded"]
    host_gbps = real["with_visitors"][0]["host_bytes_per_second"] / 1e9
    device_memory, host_memory = re.search(r"([\d.]+ GiB) device and ([\d.]+ GiB) host memory", real["device"]).groups()
    length = f"random-output-len={OUTPUT};request-rate=inf"
    with open(flags.out / f"{folder.name}.log", "w", encoding="utf-8") as log:
        subprocess.run([flags.binary, "simulate", "--shape", shape_folder(flags, point["shape"]), "--accelerator", point["pace"],
                        "--accelerator-memory", device_memory.replace(" ", ""), "--memory-share", "1", "--slowdown", str(real["slowdown"]), "--link-gbps", str(point["link-gbps"]),
                        "--host-kv", host_memory.replace(" ", ""), "--host-gbps", str(host_gbps), "--host-workers", "1", "--policy", policy, "--offload-below", "100",
                        "--onload-above", "100", "--group-stages", str(flags.group_stages), "--max-num-seqs", str(seqs),
                        "--max-num-batched-tokens", str(max(2048, seqs + 64)), "--limit", f"{flags.simulated_seconds}s",
                        "--stream", f"name=residents;service-tier=priority;num-prompts={RESIDENTS};random-input-len={RESIDENT_PROMPT};{length}",
                        "--stream", f"name=offloaded;service-tier=flex;num-prompts={point['offloaded']};"
                                    f"random-input-len={point['offloaded-prompt']};{length}", "-o", folder],
                       stdout=log, stderr=subprocess.STDOUT, check=True)
    return folder


def real_figures(real):
    """Step time in ms, hops a second, best-effort tokens a second of the first window: after a freeze lanes do not wait for a while."""
    window = real["with_visitors"][0]
    return [window["seconds"] / window["steps"] * 1e3, window["hops_per_second"], window["hops_per_second"] / real["layers"]]


def simulated_figures(flags, folder, real):
    with open(folder / "machine.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    length = float(rows[1]["begin_s"]) - float(rows[0]["begin_s"])
    # As the real run's windows, it begins one full turn after the last sequence's KV has come to the host: after the time that the link needs for all KV.
    began = next((i for i, row in enumerate(rows) if float(row["offloaded"]) > 0), len(rows))
    all_there = next((i for i, row in enumerate(rows) if float(row["offloaded"]) >= real["offloaded"] - 0.5), len(rows))
    shape = SHAPES[real["shape"]]
    token_bytes = shape["num_hidden_layers"] * shape["num_key_value_heads"] * HEAD_DIM * 2 * 2  # K and V, two bytes a number
    blocks = -(-real["offloaded_prompt"] // BLOCK_TOKENS)
    moving = real["offloaded"] * blocks * BLOCK_TOKENS * token_bytes / real["link_bytes_per_second"]
    settled = max(all_there, began + int(moving / length)) + 1
    turn = real["offloaded"] * (real["layers"] + 1)
    while turn > 0 and settled < len(rows):
        turn -= float(rows[settled]["hops_per_s"]) * length
        settled += 1
    window = rows[settled:settled + max(1, int(5 * flags.seconds / length))]
    steps = sum(float(row["steps"]) for row in window)
    if steps == 0:
        raise SystemExit(f"{folder.name}: {real['offloaded']} sequences were not on their way within the simulated time; raise --simulated-seconds")
    hops = sum(float(row["hops_per_s"]) for row in window) / len(window)
    return [len(window) * length / steps * 1e3, hops, hops / real["layers"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--binary", default="build/release/tandem")
    parser.add_argument("--points", nargs="+", choices=POINTS, default=list(POINTS))
    parser.add_argument("--policies", nargs="+", default=["piggyback", "overlap", "lanes"])
    parser.add_argument("--group-stages", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4, help="of a real window")
    parser.add_argument("--simulated-seconds", type=int, default=120)
    parser.add_argument("--real-only", action="store_true", help="no simulation yet")
    flags = parser.parse_args()
    flags.out.mkdir(parents=True, exist_ok=True)
    if not flags.real_only:
        print("| point | policy | step ms, real and simulated | hops/s | best-effort tokens/s | ratios | real run's overruns |")
        print("|---|---|---|---|---|---|---|")
    for name in flags.points:
        for policy in flags.policies:
            real = run_real(flags, name, policy)
            if flags.real_only:
                continue
            simulated = simulated_figures(flags, run_simulated(flags, name, policy, real), real)
            both = list(zip(real_figures(real), simulated))
            overruns = real["with_visitors"][0]["overrun_share"]
            print(f"| {name} | {policy} | {both[0][0]:.2f}, {both[0][1]:.2f} | {both[1][0]:.0f}, {both[1][1]:.0f} | {both[2][0]:.1f}, "
                  f"{both[2][1]:.1f} | {', '.join(f'{s / r:.2f}' for r, s in both)} | {overruns:.1%} |", flush=True)


if __name__ == "__main__":
    main()
