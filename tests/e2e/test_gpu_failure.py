"""A GPU that fails while it serves, while a model loads, or that is full: what clients, probes, batches and the log get to know, and that
the process ends in time. The GPU is played by the host (tests/cuda_on_host), whose calls that might wait for a lost GPU never return."""
import concurrent.futures
import json
import os
import subprocess
import time

import pytest
from batch_requests import begin, chat, ended, jsonl, lines_of, upload
from conftest import BINARY, launch
from server import until
from test_two_tiers import FLAGS, MODEL, body

PLUGIN = BINARY.parent / "libtandem_cuda_on_host.so"
DEVICE = ("--device", str(PLUGIN), "--device-memory", "256MiB", "--host-memory", "64MiB")
REASON = "the GPU failed while "
END_SECONDS = 20  # the process says that it needs 3 for the probes, and takes 18 at the most


@pytest.fixture(scope="module", autouse=True)
def plugin():
    if not PLUGIN.is_file():
        pytest.fail(f"{PLUGIN} is missing; build it (cmake --build build/dev --target tandem_cuda_on_host_plugin)", pytrace=False)


class Drill:
    """The `at`-th thing of a kind fails, counted from strike() on."""

    def __init__(self, folder, what, at=1, error="launch"):
        self.file = folder / "strike"
        self.env = {"CUDA_ON_HOST_FAULT": f"{what}:{at}:{error}:{self.file}"}

    def strike(self):
        self.file.touch()


def end_of(server, seconds=END_SECONDS):
    """The exit code of a process that ends by itself."""
    code = server.process.wait(seconds)
    server.stop()
    return code


def stream(server, i):
    """The events of one streamed answer; an error is the last event."""
    asked = body(i) | body(i)["extra_body"] | {"stream": True, "max_tokens": 400, "prompt": "x", "ignore_eos": True}
    del asked["extra_body"]
    with server.http() as http, http.stream("POST", "/v1/completions", json=asked) as response:
        assert response.status_code == 200
        events = [line[len("data: "):] for line in response.iter_lines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]


def unary(server, i):
    asked = body(i) | body(i)["extra_body"] | {"max_tokens": 400, "prompt": "x", "ignore_eos": True}
    del asked["extra_body"]
    with server.http() as http:
        return http.post("/v1/completions", json=asked)


@pytest.mark.parametrize("what", ["kernel", "copy", "launch", "event"])
@pytest.mark.parametrize("tiers", [1, 2])
def test_requests_probes_and_log_tell_the_reason_and_the_process_ends(binary, tmp_path, what, tiers):
    drill = Drill(tmp_path, what, at=20, error="ecc")
    blocks = ("--policy", "piggyback", "--num-kv-blocks", "14") if tiers == 2 else ()
    server = launch(binary, f"gpu-failure-{what}-{tiers}", MODEL, *FLAGS, *DEVICE, *blocks, env=drill.env)
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        streams = [pool.submit(stream, server, i) for i in range(12)]
        answers = [pool.submit(unary, server, i) for i in range(12)]
        assert until(lambda: server.get("/load").json()["server_load"] == 24, every=0.005)
        if tiers == 2:
            assert until(lambda: server.metric("tandem_hops_total") > 0, every=0.01)
        drill.strike()
        failed = [one.result() for one in streams]
        refused = [one.result() for one in answers]
    for events in failed:
        assert REASON in events[-1]["error"]["message"] and "uncorrectable ECC error" in events[-1]["error"]["message"]
    for answer in refused:
        assert answer.status_code == 500 and REASON in answer.json()["error"]["message"]
    with server.http() as http:  # connections are still taken, so that probes learn why
        health, ready, later = http.get("/health"), http.get("/ready"), http.post("/v1/completions", json={"model": "golden", "prompt": "x"})
        assert health.status_code == 503 and REASON in health.json()["error"]["message"]
        assert ready.status_code == 503 and ready.json()["status"] == "failed" and REASON in ready.json()["reason"]
        assert later.status_code == 503 and REASON in later.json()["error"]["message"]
    assert end_of(server) == 1
    log = server.log_tail()
    assert REASON in log and "nvidia-smi -q -d ECC,ROW_REMAPPER" in log and "stopped, because the engine failed" in log


def test_a_second_signal_or_sigterm_while_it_ends_does_not_hold_it(binary, tmp_path):
    drill = Drill(tmp_path, "kernel")
    server = launch(binary, "gpu-failure-sigterm", MODEL, *FLAGS, *DEVICE, env=drill.env)
    drill.strike()
    assert unary(server, 0).status_code == 500
    began = time.monotonic()
    server.process.terminate()
    assert end_of(server) == 1, "a failure is not an orderly end, not even on request"
    assert time.monotonic() - began < END_SECONDS


def test_a_batch_keeps_its_lines_pauses_and_goes_on_after_a_restart(binary, tmp_path):
    count = 150  # seconds of work after the first answer
    drill = Drill(tmp_path, "kernel", at=100)
    flags = (*FLAGS, *DEVICE, "--data-folder", tmp_path / "data", "--max-num-seqs", "4")
    server = launch(binary, "gpu-failure-batch", MODEL, *flags, env=drill.env)
    client = server.openai()
    batch = begin(client, upload(client, jsonl(chat(f"line-{i}", max_tokens=40) for i in range(count))))
    assert until(lambda: client.batches.retrieve(batch.id).request_counts.completed > 0, every=0.01)
    drill.strike()
    assert end_of(server, 60) == 1

    again = launch(binary, "gpu-failure-batch-again", MODEL, *flags)
    client = again.openai()
    assert client.batches.retrieve(batch.id).request_counts.completed > 0
    end = ended(client, batch)
    assert end.status == "completed" and end.error_file_id is None
    assert (end.request_counts.completed, end.request_counts.failed) == (count, 0)
    assert sorted(line["custom_id"] for line in lines_of(client, end.output_file_id)) == sorted(f"line-{i}" for i in range(count))
    again.stop_cleanly()


def run(binary, *arguments, **environment):
    began = time.monotonic()
    done = subprocess.run([str(binary), *map(str, arguments)], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
                          env=os.environ | environment)
    assert time.monotonic() - began < 60
    return done


@pytest.mark.parametrize("fault", ["kernel:1:ecc", "kernel:12:launch", "copy:2:launch", "event:3:ecc", "launch:10:launch"])
def test_a_failure_while_the_model_loads_ends_the_start(binary, fault):
    done = run(binary, "serve", MODEL, *DEVICE, "--port", "0", CUDA_ON_HOST_FAULT=fault)
    assert done.returncode == 1
    assert REASON in done.stderr and ("Xid" in done.stderr or "ROW_REMAPPER" in done.stderr)


def test_full_memory_at_the_start_is_refused_with_the_numbers(binary):
    done = run(binary, "serve", MODEL, *DEVICE, "--port", "0", CUDA_ON_HOST_FAULT="memory:1:launch")
    assert done.returncode == 1
    for word in ("256.0 MiB of GPU memory are not to be had", "out of memory", "15.00 GiB of 16.00 GiB are free", "--device-memory"):
        assert word in done.stderr


def test_a_batch_without_a_server_keeps_its_lines_and_goes_on(binary, tmp_path):
    (tmp_path / "in.jsonl").write_bytes(jsonl(chat(f"line-{i}", max_tokens=20) for i in range(40)))
    arguments = ("batch", "run", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model", MODEL, "--served-model-name", "golden",
                 "--max-num-seqs", "4", *DEVICE)
    done = run(binary, *arguments, CUDA_ON_HOST_FAULT="kernel:1500:launch")
    assert done.returncode == 1 and REASON in done.stderr
    before = (tmp_path / "out.jsonl").read_text().splitlines()
    assert 0 < len(before) < 40
    assert run(binary, *arguments).returncode == 0
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(one["custom_id"] for one in answers) == sorted(f"line-{i}" for i in range(40))
    assert all(one["response"]["status_code"] == 200 for one in answers)
