"""A whole model of random weights on a device: makes it in a scratch folder, then measures the time from the server's start to its first
token, decoding at several batch sizes and a long prompt over HTTP, then the same
through the engine alone (`tandem bench model`, decoding with and without CUDA graphs), steps beside offloaded requests (`tandem bench tiers`), and how well a profile of two
tiers (`tandem profile`) predicts steps. Also what the driver says of the GPU under load.
Prints one line of JSON with the figures; a part that fails or finds no time is named there; the others still run.
Usage: measure_model.py TANDEM --device NAME --scratch FOLDER [--preset 8B] [--device-memory 60GiB] [--host-memory 2GiB] [--limit SECONDS]
           [--batches 1,16,64] [--prompt 4096] [--output 64] [--tiers 16:32:512] [--window 3] [--profile 20] [--keep]"""
import argparse
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def stream(port, prompt, output, found):
    """One completion; appends the times of its chunks with text."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    body = {"model": "made", "prompt": prompt, "max_tokens": output, "temperature": 0, "ignore_eos": True, "stream": True}
    begin = time.perf_counter()
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"status {response.status}: {response.read()[:300]!r}")
    times = [time.perf_counter() for line in response if line.startswith(b'data: {"')]
    if len(times) < output:
        raise RuntimeError(f"{len(times)} chunks instead of {output}")
    found.append((times[0] - begin, (times[output - 1] - times[0]) / max(output - 1, 1), begin, times[output - 1]))


class Measurement:
    def __init__(self, options):
        self.options = options
        self.end = time.monotonic() + options.limit
        self.folder = pathlib.Path(options.scratch) / f"model-{options.preset}"
        self.log = pathlib.Path(options.scratch) / "serve.log"
        self.found = {"preset": options.preset}
        self.port = free_port()
        self.server = None
        self.device = ["--device", options.device, "--device-memory", options.device_memory, "--host-memory", options.host_memory]

    def left(self):
        return self.end - time.monotonic()

    def part(self, name, run, wanted_seconds=5):
        if self.left() < wanted_seconds:
            self.found.setdefault("left_out", []).append(name)
            return
        try:
            run()
        except (OSError, RuntimeError, subprocess.SubprocessError, http.client.HTTPException, ValueError) as error:
            self.found.setdefault("failed", {})[name] = str(error)[-600:]
        print(f"{name}: {json.dumps(self.found)}", file=sys.stderr, flush=True)

    def make(self):
        begin = time.monotonic()
        if not (self.folder / "config.json").exists():
            subprocess.run([self.options.tandem, "model", "make", str(self.folder), "--preset", self.options.preset, *self.options.shape.split()], check=True,
                           stdout=sys.stderr, timeout=max(1, self.left()))
        self.found["make_seconds"] = round(time.monotonic() - begin, 2)
        self.found["model_bytes"] = sum(file.stat().st_size for file in self.folder.glob("*.safetensors"))

    def start(self):
        with open(self.log, "wb") as log:
            begin = time.perf_counter()
            self.server = subprocess.Popen(
                [self.options.tandem, "serve", str(self.folder), "--served-model-name", "made", "--host", "127.0.0.1", "--port", str(self.port),
                 *self.device, "--policy", "piggyback"], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        while True:
            if self.server.poll() is not None or self.left() < 1:
                raise RuntimeError("the server did not start: " + self.log.read_text(errors="replace")[-500:])
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            try:
                connection.request("GET", "/ready")
                if connection.getresponse().status == 200:
                    break
            except OSError:
                pass
            time.sleep(0.005)
        self.found["ready_seconds"] = time.perf_counter() - begin
        first = []
        stream(self.port, [300, 301, 302, 303], 1, first)
        self.found["first_token_seconds"] = first[0][3] - begin

    def over_http(self, batch, prompt, output):
        results, failures = [], []

        def one_client(number):
            try:
                stream(self.port, [300 + (number * 131 + batch * 17 + i * 7) % 600 for i in range(prompt)], output, results)
            except (OSError, RuntimeError, http.client.HTTPException) as error:
                failures.append(str(error))

        threads = [threading.Thread(target=one_client, args=(number,)) for number in range(batch)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise RuntimeError(failures[0])
        begin, end = min(each[2] for each in results), max(each[3] for each in results)
        self.found.setdefault("http", []).append({
            "batch": batch, "prompt": prompt, "output": output, "ttft_ms": 1e3 * statistics.median(each[0] for each in results),
            "tpot_ms": 1e3 * statistics.median(each[1] for each in results), "tokens_per_s": batch * output / (end - begin)})

    def driver(self):
        """What the driver says of the GPU, while a prompt is answered."""
        asking = threading.Thread(target=self.over_http, args=(1, self.options.prompt, self.options.output))
        asking.start()
        time.sleep(1.2)  # it is asked once a second
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        asking.join()
        self.found["driver"] = {line.split("{")[0].removeprefix("tandem_accelerator_"): float(line.split()[-1])
                                for line in text.splitlines() if line.startswith("tandem_accelerator_")}

    def stop(self):
        if self.server is not None and self.server.poll() is None:
            self.server.send_signal(signal.SIGTERM)
            try:
                self.server.wait(20)
            except subprocess.TimeoutExpired:
                self.server.kill()
                self.server.wait()
        self.server = None

    def engine(self, prompt, output, batches, graphs="off", profile=None):
        path = pathlib.Path(self.options.scratch) / "bench-model.json"
        path.unlink(missing_ok=True)
        done = subprocess.run([self.options.tandem, "bench", "model", str(self.folder), *self.device, "--prompt", str(prompt), "--output",
                               str(output), "--passes", "1", "--max-num-batched-tokens", str(max(prompt, 2048)), "--json", str(path), "--batch",
                               *map(str, batches), *(("--profile", str(profile)) if profile else ())], stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=subprocess.PIPE, text=True,
                              timeout=max(1, self.left()), env=os.environ | {"TANDEM_CUDA_GRAPHS": graphs})
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-500:])
        for row in json.loads(path.read_text())["rows"]:
            self.found.setdefault("engine", []).append({
                "batch": row["batch"], "prompt": prompt, "output": output, "graphs": graphs, "timed_algorithms": profile is not None, "prefill_tokens_per_s": row["prefill_tokens_per_second"],
                "step_ms": 1e3 * row["decode_step_seconds"], "decode_tokens_per_s": row["decode_tokens_per_second"],
                "engine_work_us": 1e6 * row["engine_work_seconds"]})

    def tiers(self):
        """Decoding beside offloaded requests, with the host at work and frozen."""
        path = pathlib.Path(self.options.scratch) / "bench-tiers.json"
        path.unlink(missing_ok=True)
        residents, offloaded, prompt = self.options.tiers.split(":")
        done = subprocess.run([self.options.tandem, "bench", "tiers", "--device", self.options.device, "--model", str(self.folder),
                               "--device-memory", self.options.device_memory, "--residents", residents, "--resident-prompt", prompt, "--offloaded",
                               offloaded, "--offloaded-prompt", prompt, "--seconds", self.options.window, "--rounds", "1", "--json", str(path)],
                              stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, timeout=max(1, self.left()))
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-500:])
        result = json.loads(path.read_text())
        self.found["tiers"] = {
            "residents": int(residents), "offloaded": int(offloaded), "prompt": int(prompt),
            "alone_ms": 1e3 * result["residents_alone"]["step_seconds"], "with_visitors_ms": 1e3 * result["with_visitors"][0]["step_seconds"],
            "host_frozen_ms": 1e3 * result["host_frozen"][0]["step_seconds"], "alone_after_ms": 1e3 * result["residents_alone_after"]["step_seconds"],
            "with_visitors_as_alone": result["with_visitors"][0]["as_alone"], "host_frozen_as_alone": result["host_frozen"][0]["as_alone"],
            "best_effort_tokens_per_s": result["best_effort_tokens_per_second"],
            "host_gb_per_s": 1e-9 * result["with_visitors"][0]["host_bytes_per_second"], "host_busy": result["with_visitors"][0]["host_busy"]}

    def profile(self):
        path = pathlib.Path(self.options.scratch) / "profile.json"
        done = subprocess.run([self.options.tandem, "profile", str(self.folder), *self.device, "--time", f"{self.options.profile}s", "-o", str(path)],
                              stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, timeout=max(1, self.left()))
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-500:])
        profile = json.loads(path.read_text())
        self.found["profile"] = {"batches": profile["batches"], "accuracy": profile["accuracy"], "host": profile["host"]}
        choices = profile.get("choices", [])  # of algorithms of products; none of the plain kernels
        self.found["choices"] = [{name: each[name] for name in ("work", "choice", "us", "usual_us")} for each in choices]
        if choices:
            self.engine(min(512, self.options.prompt), self.options.output, [int(each) for each in self.options.batches.split(",")], profile=path)

    def run(self):
        options = self.options
        batches = [int(each) for each in options.batches.split(",")]
        self.part("make", self.make)
        self.part("start", self.start)
        if "first_token_seconds" in self.found:
            for batch in batches:
                self.part(f"http {batch}", lambda batch=batch: self.over_http(batch, min(128, options.prompt), options.output))
            self.part("http prompt", lambda: self.over_http(1, options.prompt, 2))
            self.part("driver", self.driver)
        self.stop()
        for graphs in ("off", "layers"):
            self.part(f"engine decode, graphs: {graphs}", lambda graphs=graphs: self.engine(min(512, options.prompt), options.output, batches, graphs), 15)
        self.part("engine prompt", lambda: self.engine(options.prompt, 2, [1]), 15)
        self.part("tiers", self.tiers, 15)
        self.part("profile", self.profile, 2 * options.profile + 20)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tandem")
    parser.add_argument("--device", required=True)
    parser.add_argument("--scratch", required=True)
    parser.add_argument("--preset", default="8B")
    parser.add_argument("--shape", default="", help="further options of `tandem model make`")
    parser.add_argument("--device-memory", default="60GiB")
    parser.add_argument("--host-memory", default="2GiB")
    parser.add_argument("--limit", type=float, default=240.0)
    parser.add_argument("--batches", default="1,16,64")
    parser.add_argument("--prompt", type=int, default=4096)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--tiers", default="16:32:512", help="RESIDENTS:OFFLOADED:PROMPT of `tandem bench tiers`")
    parser.add_argument("--window", default="3", help="seconds of a window there")
    parser.add_argument("--profile", type=int, default=20, help="seconds of `tandem profile`")
    parser.add_argument("--keep", action="store_true", help="leave the model in the scratch folder")
    options = parser.parse_args()
    os.makedirs(options.scratch, exist_ok=True)
    measurement = Measurement(options)
    try:
        measurement.run()
    finally:
        measurement.stop()
        if not options.keep:
            shutil.rmtree(measurement.folder, ignore_errors=True)
        print(json.dumps(measurement.found))
    return 1 if "failed" in measurement.found else 0


if __name__ == "__main__":
    sys.exit(main())
