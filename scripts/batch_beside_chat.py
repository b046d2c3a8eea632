#!/usr/bin/env python3
"""Times to the first token of chat beside a batch of many lines, and beside the same work sent directly as best effort; and the server's memory.

    scripts/batch_beside_chat.py OUT --model MODEL_DIR [--runs 5] [--seconds 60] [--lines 50000]

For each run a server is started three times, with chat alone, with chat beside a batch over /v1/batches, and with chat beside completions of the same
lengths from `tandem bench serve --service-tier flex`, at the concurrency of a batch. The order changes from run to run. Results go to
OUT; runs already there are kept. The table has the medians of the runs; ratios are of two servers of one run.
"""
import argparse
import json
import pathlib
import random
import signal
import statistics
import subprocess
import tempfile
import time
import urllib.request

from measured_server import MeasuredServer, free_port

SEQUENCES = 64
INPUT, OUTPUT = 64, 96
LOADS = ("alone", "batch", "direct")


def request(port, path, body, content_type):
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, headers={"Content-Type": content_type} if body else {})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return json.load(answer)


def write_lines(path, count, vocabulary):
    draw = random.Random(1)
    with open(path, "w", encoding="utf-8") as file:
        for number in range(count):
            body = {"model": "m", "prompt": [draw.randrange(10, vocabulary) for _ in range(INPUT)], "max_tokens": OUTPUT, "ignore_eos": True}
            file.write(json.dumps({"custom_id": str(number), "method": "POST", "url": "/v1/completions", "body": body}) + "\n")


def start_batch(port, lines):
    bound = "a-line-of-no-file"
    head = (f'--{bound}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{bound}\r\n'
            'Content-Disposition: form-data; name="file"; filename="lines.jsonl"\r\n\r\n')
    body = head.encode() + lines.read_bytes() + f"\r\n--{bound}--\r\n".encode()
    file = request(port, "/v1/files", body, f"multipart/form-data; boundary={bound}")
    asked = {"input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
    batch = request(port, "/v1/batches", json.dumps(asked).encode(), "application/json")["id"]
    while request(port, f"/v1/batches/{batch}", None, "")["status"] == "validating":
        time.sleep(0.1)
    return lambda: request(port, f"/v1/batches/{batch}", None, "")


def bench(flags, port, log, *options):
    return subprocess.Popen([flags.binary, "bench", "serve", "--port", str(port), *[str(option) for option in options]], stdout=log, stderr=log)


def start_direct(flags, port, log):
    return bench(flags, port, log, "--service-tier", "flex", "--num-prompts", flags.lines, "--max-concurrency", 2 * SEQUENCES, "--random-input-len", INPUT,
                 "--random-output-len", OUTPUT)


def measure(flags, lines, load, run):
    result = flags.out / f"{load}-{run}.json"
    if result.exists():
        return
    print(f"{result.stem} ...", flush=True)
    port = free_port()
    with open(flags.out / f"{result.stem}.log", "w", encoding="utf-8") as log, tempfile.TemporaryDirectory() as folder:
        command = [flags.binary, "serve", flags.model, "--served-model-name", "m", "--port", port, "--data-folder", f"{folder}/data", "--max-num-seqs", SEQUENCES,
                   "--max-queue-flex", 4 * SEQUENCES]
        server = MeasuredServer(command, port, {"XDG_CACHE_HOME": f"{folder}/cache"}, log)
        flood = None
        try:
            server.wait_ready("/ready", 120)
            state = None
            if load == "batch":
                state = start_batch(port, lines)
            elif load == "direct":
                flood = start_direct(flags, port, log)
            time.sleep(3)
            chat = bench(flags, port, log, "--service-tier", "priority", "--request-rate", flags.chat_rate, "--num-prompts", int(flags.chat_rate * flags.seconds),
                         "--random-input-len", 64, "--random-output-len", 32, "--seed", run, "--save-result", "--result-dir", flags.out, "--result-filename", "chat.json")
            if chat.wait(5 * flags.seconds):
                raise SystemExit(f"chat failed; see {log.name}")
            if flood is not None and flood.poll() is not None:
                raise SystemExit("the work beside chat ended first; give more --lines or fewer --seconds")
            counts = state()["request_counts"] if state else None
            if counts is not None and counts["completed"] == counts["total"]:
                raise SystemExit("the batch ended first; give more --lines or fewer --seconds")
        finally:
            if flood is not None:
                flood.send_signal(signal.SIGKILL)
                flood.wait()
            server.stop()
        times = json.loads((flags.out / "chat.json").read_text())["tandem"]["classes"][0]["ttft_ms"]["percentiles"]
        result.write_text(json.dumps({"p50": times["50"], "p99": times["99"], "peak_bytes": server.peak_bytes, "request_counts": counts}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--binary", default="build/release/tandem")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--chat-rate", type=float, default=20)
    parser.add_argument("--lines", type=int, default=50000)
    flags = parser.parse_args()
    flags.out.mkdir(parents=True, exist_ok=True)
    vocabulary = json.loads((pathlib.Path(flags.model) / "config.json").read_text())["vocab_size"]
    lines = flags.out / "lines.jsonl"
    write_lines(lines, flags.lines, vocabulary)
    for run in range(flags.runs):
        for load in LOADS[run % 3:] + LOADS[:run % 3]:
            measure(flags, lines, load, run)
    runs = {load: [json.loads((flags.out / f"{load}-{run}.json").read_text()) for run in range(flags.runs)] for load in LOADS}
    print("| chat beside | TTFT P50 | TTFT P99 | peak memory |\n|---|---|---|---|")
    for load in LOADS:
        p50, p99, peak = (statistics.median(run[key] for run in runs[load]) for key in ("p50", "p99", "peak_bytes"))
        print(f"| {load} | {p50:.1f} ms | {p99:.1f} ms | {peak / 2**20:.0f} MiB |")
    ratios = [batch["p99"] / direct["p99"] for batch, direct in zip(runs["batch"], runs["direct"])]
    more = [(batch["peak_bytes"] - direct["peak_bytes"]) / 2**20 for batch, direct in zip(runs["batch"], runs["direct"])]
    print(f"\nP99 beside a batch over P99 beside the same work sent directly: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}); "
          f"a batch takes {statistics.median(more):.0f} MiB more than that work")


if __name__ == "__main__":
    main()
