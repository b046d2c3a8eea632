"""What every peer's record says beside its results: when, where and beside what load it was measured."""
import datetime
import json
import os
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def machine():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    name = next((line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")), platform.machine())
    flags = next((line.split(":", 1)[1].split() for line in info.splitlines() if line.startswith("flags")), [])
    memory = next(line.split()[1] for line in open("/proc/meminfo") if line.startswith("MemTotal"))
    return {"cpu": name, "cores": os.cpu_count(), "memory_gib": int(memory) >> 20,
            "isa": [f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "amx_int8") if f in flags]}


def write_report(peer, options, load_before, results):
    """`peer`: its name and versions. To options.output, "-" for stdout."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    text = json.dumps({
        **peer, "tandem_commit": commit, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(), "load_average": {"before": load_before, "after": os.getloadavg()[0]}, "shape": options.shape,
        "threads": options.threads, "rounds": options.rounds, "results": results}, indent=1)
    if options.output == "-":
        print(text)
    else:
        pathlib.Path(options.output).write_text(text + "\n")
