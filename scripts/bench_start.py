#!/usr/bin/env python3
"""Measures a server's start: from the process to the first token of a request, and its peak memory beside the memory plan's.

Usage: scripts/bench_start.py BINARY MODEL_DIR [--passes 5] [--device-memory 2600MiB] [-o FILE]
  The model's files are read once before, so that they lie in the page cache. The last pass also computes 32 prompts of 512 tokens:
  more than the KV pool of that size holds for a 1.1B model, so every row of the plan is in use when peak memory is read.
"""
import argparse
import concurrent.futures
import datetime
import http.client
import json
import os
import pathlib
import platform
import re
import signal
import socket
import statistics
import subprocess
import sys
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def call(port, method, path, body=None, timeout=120):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        text = reply.read()
        return reply.status, text
    finally:
        connection.close()


def completion(port, prompt, tokens):
    body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    return call(port, "POST", "/v1/completions", body)


def first_token(port, process, deadline_s=120):
    """Asks for one token again and again until the answer is 200; returns the moment of that answer."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        if process.poll() is not None:
            sys.exit(f"bench_start: the server ended with {process.returncode}")
        try:
            status, _ = completion(port, [1, 2, 3, 4], 1)
            if status == 200:
                return time.monotonic()
        except (ConnectionError, OSError):
            pass
        time.sleep(0.005)
    sys.exit("bench_start: no token within two minutes")


def peak_bytes(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", text).group(1)) * 1024


def one_pass(arguments, fill):
    port = free_port()
    command = [arguments.binary, "serve", arguments.model, "--device", "cpu", "--port", str(port), "--log-level", "warning",
               "--max-model-len", "1024", "--device-memory", arguments.device_memory]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        seconds = first_token(port, process) - began
        config = json.loads(call(port, "GET", "/v1/tandem/config")[1])
        if fill:
            # Different prompts, so that no prefix is shared and the whole KV pool is written.
            prompts = [[(7 * i + 13 * j) % 30000 + 3 for j in range(512)] for i in range(32)]
            with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
                statuses = [status for status, _ in pool.map(lambda prompt: completion(port, prompt, 16), prompts)]
            if statuses != [200] * len(prompts):
                sys.exit(f"bench_start: a prompt was answered with {max(statuses)}")
        return {"first_token_s": seconds, "peak_bytes": peak_bytes(process.pid), "plan_bytes": sum(config["memory_plan_bytes"].values()),
                "fill": fill}
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--device-memory", default="2600MiB")
    parser.add_argument("-o", "--output")
    arguments = parser.parse_args()
    for file in pathlib.Path(arguments.model).iterdir():
        with open(file, "rb") as data:
            while data.read(1 << 24):
                pass
    rows = [one_pass(arguments, fill=index == arguments.passes - 1) for index in range(arguments.passes)]
    seconds = [row["first_token_s"] for row in rows]
    peak = max(row["peak_bytes"] for row in rows)
    result = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "machine": platform.processor(),
              "load_average": os.getloadavg(), "command": " ".join(sys.argv), "rows": rows,
              "first_token_s": statistics.median(seconds), "peak_over_plan": peak / rows[0]["plan_bytes"]}
    print(f"start to first token: {statistics.median(seconds):.2f} s (median of {len(seconds)}, {min(seconds):.2f}..{max(seconds):.2f})")
    print(f"peak memory: {peak / 2**30:.2f} GiB, {100 * result['peak_over_plan']:.0f} % of the memory plan's {rows[0]['plan_bytes'] / 2**30:.2f} GiB")
    if arguments.output:
        pathlib.Path(arguments.output).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
