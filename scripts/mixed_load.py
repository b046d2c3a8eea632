#!/usr/bin/env python3
"""Latency-sensitive requests beside as much best effort as there is time for, over HTTP, policy by policy, and a table of what came out.

    scripts/mixed_load.py OUT --model MODEL_DIR [--policy omniserve sarathi ...] [--load alone mixed] [--requests 1050]

Makes a profile of the model on this machine (once), starts `tandem serve`, sends both classes with `tandem bench serve`, records the run, and
writes results and reports to OUT. Runs already there are kept: only the table is printed again. The best-effort load is open loop, beyond what
the server can take; when the latency-sensitive requests are through the run is ended. `alone` sends those alone.

Best-effort tokens are counted from the record: all that were computed, of prompts and answers, from two seconds after the first latency-sensitive
request to the last. They are compared with what the profile's model would fit into the time that the target leaves: with L the TPOT target and,
for each step, t the model's time of the step and l that of its latency-sensitive part alone, corrected as the server had corrected it, the bound
is (tokens / sum of t - l) x (sum of L - l) / (steps x L) a second.
"""
import argparse
import bisect
import json
import pathlib
import signal
import socket
import subprocess
import sys
import time

WARM_NS = 2e9


class Modular:
    """The profile's modular model (src/latency/modular_model.h), for steps without visitors."""

    def __init__(self, profile):
        self.costs = json.loads(profile.read_text())["modular"]

    @staticmethod
    def ladder(points, rows):
        if rows <= 0:
            return 0.0
        at = bisect.bisect_right([point[0] for point in points], rows)
        if at == 0 or at == len(points):
            return points[min(at, len(points) - 1)][1]
        (low, nanos), (high, more) = points[at - 1], points[at]
        return nanos + (more - nanos) * (rows - low) / (high - low)

    def nanos(self, shape):
        if shape["prefill"] + shape["decode"] == 0:
            return 0.0
        attention = 0.0
        if shape["prefill"]:
            prefill = self.costs["prefill"]
            attention += prefill["fixed"] + prefill["per_pair"] * shape["pairs"] + prefill["per_row"] * shape["prefill"] + prefill["per_slice"] * shape["slices"]
        if shape["decode"]:
            decode = self.costs["decode"]
            attention += decode["fixed"] + decode["per_context"] * shape["context"] + decode["per_row"] * shape["decode"]
        if not shape["logits"]:
            attention *= (self.costs["layers"] - 1) / self.costs["layers"]
        return self.costs["fixed"] + self.ladder(self.costs["dense"], shape["prefill"] + shape["decode"]) + attention + self.ladder(self.costs["head"], shape["logits"])


def steps_of(record):
    """Per step: when it was planned, its shape, that of its latency-sensitive part, best-effort tokens, time, and time predicted."""
    sequences, computed, steps, planned = [], {}, [], None
    with record.open() as lines:
        for line in map(json.loads, lines):
            if "arrival" in line:  # one choice each, so sequences are numbered as requests arrive
                sequences.append((len(line["prompt"]), line.get("best_effort", False), line["at"]))
            elif "plan" in line:
                shapes = [dict.fromkeys(("prefill", "slices", "pairs", "decode", "context", "logits"), 0) for _ in range(2)]
                best_effort = 0
                for sequence in line["preempt"]:
                    computed[sequence] = 0
                for sequence, tokens in line["slices"]:
                    prompt, is_best_effort, _ = sequences[sequence - 1]
                    before = computed.get(sequence, 0)
                    best_effort += tokens if is_best_effort else 0
                    for shape in shapes[: 1 if is_best_effort else 2]:
                        if before >= prompt and tokens == 1:
                            shape["decode"] += 1
                            shape["context"] += before + 1
                            shape["logits"] += 1
                        else:
                            shape["prefill"] += tokens
                            shape["slices"] += 1
                            shape["pairs"] += tokens * before + tokens * (tokens + 1) // 2
                            shape["logits"] += 1 if before + tokens >= prompt else 0
                    computed[sequence] = before + tokens
                planned = (line["now"], *shapes, best_effort)
            elif "result" in line and planned:
                steps.append((*planned, line["ns"], line.get("predicted_ns", 0)))
                planned = None
    sensitive = [at for _, best_effort, at in sequences if not best_effort]
    began, ended = min(sensitive) + WARM_NS, max(sensitive)
    return [step for step in steps if began <= step[0] < ended], ended - began


def best_effort_of(record, model, target_ns):
    """Best-effort tokens a second, and what share of the bound they are."""
    steps, window = steps_of(record)
    tokens = sum(step[3] for step in steps)
    if tokens == 0:
        return 0.0, None
    sensitive = best_effort = 0.0
    for _, whole, part, _, _, predicted in steps:
        nanos = model.nanos(whole)
        correction = predicted / nanos if predicted and nanos else 1.0
        sensitive += model.nanos(part) * correction
        best_effort += (nanos - model.nanos(part)) * correction
    bound = tokens / best_effort * (len(steps) * target_ns - sensitive) / (len(steps) * target_ns)
    return tokens / window * 1e9, tokens / window / bound


class Runs:
    def __init__(self, flags):
        self.flags = flags
        self.out = flags.out
        self.shape = ["--max-num-seqs", "128", "--max-num-batched-tokens", "1024", "--max-model-len", "2048", "--enable-prefix-caching", "off",
                      "--threads", str(flags.threads)]

    def profile(self):
        path = self.out / "profile.json"
        if not path.exists():
            subprocess.run([self.flags.binary, "profile", self.flags.model, "-o", path, "--time", "15s", *self.shape], check=True)
        return path

    def measure(self, policy, load):
        result = self.out / f"{policy}-{load}.json"
        if result.exists():
            return
        record = result.with_suffix(".record")
        record.unlink(missing_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with (self.out / f"{policy}-{load}.log").open("w") as log:
            server = subprocess.Popen([self.flags.binary, "serve", self.flags.model, *self.shape, "--policy", policy, "--profile", self.profile(), "--record-out", record,
                                       "--max-queue", "100000", "--port", str(port)], stdout=log, stderr=log)
            try:
                self.wait_until_ready(port)
                self.send(port, load, result, log)
            finally:
                server.send_signal(signal.SIGTERM)
                time.sleep(1)
                server.send_signal(signal.SIGTERM)  # what is left of the best effort is not waited for
                server.wait(30)

    @staticmethod
    def wait_until_ready(port):
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.1)
        sys.exit("the server does not listen; see its log")

    def send(self, port, load, result, log):
        flags = self.flags
        seconds = flags.requests / flags.rate
        best_effort_rate = flags.best_effort_rate
        streams = ["--stream", f"name=latency_sensitive;service-tier=priority;request-rate={flags.rate};num-prompts={flags.requests};random-input-len=64;"
                   f"random-output-len=32;random-range-ratio=0.5;slo-ttft={flags.ttft_ms}ms;slo-tpot={flags.tpot_ms}ms"]
        if load == "mixed":
            streams += ["--stream", f"name=best_effort;service-tier=flex;request-rate={best_effort_rate};num-prompts={int(best_effort_rate * seconds * 1.2)};"
                        "random-input-len=512;random-output-len=64;random-range-ratio=0.5"]
        client = subprocess.Popen([flags.binary, "bench", "serve", "--port", str(port), "--explain", *streams, "--save-result", "--result-dir", self.out,
                                   "--result-filename", result.name, "--report", result.with_suffix(".html"), "--label", f"{result.stem}"], stdout=log, stderr=log)
        try:
            client.wait(seconds + 4)
        except subprocess.TimeoutExpired:
            client.send_signal(signal.SIGINT)
            client.wait(30)

    def table(self):
        model = Modular(self.profile())
        print("| policy, load | requests | within targets, client | engine | TTFT P50, P99 (ms) | TPOT P50, P99 (ms) | best effort (tokens/s) | of what fits |")
        print("|---|---|---|---|---|---|---|---|")
        for policy in self.flags.policy:
            for load in self.flags.load:
                path = self.out / f"{policy}-{load}.json"
                if not path.exists():
                    continue
                of_class = next(one for one in json.loads(path.read_text())["tandem"]["classes"] if one["name"] == "latency_sensitive")
                ttft, tpot = of_class["ttft_ms"]["percentiles"], of_class["tpot_ms"]["percentiles"]
                rate, share = best_effort_of(path.with_suffix(".record"), model, self.flags.tpot_ms * 1e6)
                print(f"| {policy}, {load} | {of_class['completed']} of {of_class['planned']} | {100 * of_class['slo_attainment']:.1f} % | "
                      f"{100 * of_class['engine_slo_attainment']:.1f} % | {ttft['50']:.1f}, {ttft['99']:.1f} | {tpot['50']:.2f}, {tpot['99']:.2f} | "
                      + (f"{rate:.0f} | {100 * share:.1f} % |" if share is not None else "| |"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--binary", default="build/release/tandem")
    parser.add_argument("--model", required=True)
    parser.add_argument("--policy", nargs="+", default=["omniserve", "sarathi", "accel_only"])
    parser.add_argument("--load", nargs="+", default=["alone", "mixed"], choices=["alone", "mixed"])
    parser.add_argument("--requests", type=int, default=1050, help="latency-sensitive ones")
    parser.add_argument("--rate", type=float, default=30, help="of them a second")
    parser.add_argument("--best-effort-rate", type=float, default=150, help="a second; more than the server can take")
    parser.add_argument("--ttft-ms", type=float, default=100)
    parser.add_argument("--tpot-ms", type=float, default=10)
    parser.add_argument("--threads", type=int, default=1, help="of the server; leave the load a core")
    parser.add_argument("--dry", action="store_true", help="measure nothing: the table of what is there")
    runs = Runs(parser.parse_args())
    runs.out.mkdir(parents=True, exist_ok=True)
    runs.profile()
    if not runs.flags.dry:
        for policy in runs.flags.policy:
            for load in runs.flags.load:
                runs.measure(policy, load)
    runs.table()


if __name__ == "__main__":
    main()
