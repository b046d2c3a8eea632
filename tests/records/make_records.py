#!/usr/bin/env python3
"""Records a short run of requests of both classes on one tier and one on two tiers, for tests/e2e/test_old_records.py.
Usage: tests/records/make_records.py BINARY FOLDER   FOLDER must exist and not have these records yet
It needs the packages of tests/e2e/requirements.txt."""
import concurrent.futures
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from server import Server, until  # noqa: E402

MODEL = HERE.parent / "goldens" / "llama-gqa-rope3-f32"
COMMON = ("--block-size", "32", "--max-model-len", "160", "--max-num-seqs", "8", "--max-num-batched-tokens", "64", "--device-memory", "64MiB", "--num-kv-blocks", "40")
RUNS = {
    "one_tier": (*COMMON, "--policy", "sarathi", "--sarathi-token-budget", "48", "--threads", "1"),
    "two_tiers": (*COMMON, "--policy", "piggyback", "--piggyback-token-budget", "48", "--emulate-accelerator", "cores=1,host-cores=1",
                  "--host-memory", "64MiB", "--offload-below", "100", "--onload-above", "100", "--group-stages", "1"),
}
PREFIX = "the fox and the hen went to the market and the fox "


def body(i):
    """Requests of both classes that differ in prompt, length and sampling; some share a prefix, some have two choices."""
    prompt = PREFIX * (1 + i % 3) + f"said {i}" if i % 2 else f"request {i}: " + "a small step " * (1 + i % 4)
    sampling = {"temperature": 0.8, "seed": 40 + i, "top_p": 0.9} if i % 3 == 1 else {"temperature": 0}
    return {"model": "golden", "prompt": prompt, "max_tokens": 8 + 2 * (i % 5), "ignore_eos": True, "n": 2 if i == 5 else 1,
            "service_tier": "flex" if i % 2 == 0 else "default", **sampling}


def record(binary, flags, path):
    with tempfile.TemporaryDirectory() as folder:
        server = Server(binary, MODEL, pathlib.Path(folder) / "log", (*flags, "--served-model-name", "golden", "--record-out", path),
                        {"TANDEM_ISA": "ref", "XDG_CACHE_HOME": folder}).wait_ready()
        with server.http() as http, concurrent.futures.ThreadPoolExecutor(10) as pool:
            for reply in pool.map(lambda i: http.post("/v1/completions", json=body(i)), range(10)):
                assert reply.status_code == 200, reply.text
            with http.stream("POST", "/v1/completions", json=body(6) | {"max_tokens": 100, "stream": True}) as stream:
                next(stream.iter_lines())  # and then the client leaves
            assert until(server.is_idle)
            assert http.post("/v1/completions", json=body(3)).status_code == 200  # from the prefix cache
        server.stop_cleanly()


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    for name, flags in RUNS.items():
        record(sys.argv[1], flags, pathlib.Path(sys.argv[2]) / f"{name}.jsonl")


if __name__ == "__main__":
    main()
