"""Two tiers on this machine: --emulate-accelerator with little device memory and much host memory, through HTTP. What must hold is
that answers are those of a plain server, whatever was offloaded when, and that nothing is left over at the end."""
import concurrent.futures
import subprocess

import pytest
from conftest import GOLDENS, launch
from server import until

MODEL = GOLDENS / "llama-gqa-rope3-f32"
FLAGS = ("--served-model-name", "golden", "--max-num-seqs", "64", "--max-num-batched-tokens", "256")
REQUESTS = 40


@pytest.fixture(scope="module")
def two_tiers(binary):
    server = launch(
        binary, "two-tiers", MODEL, *FLAGS, "--emulate-accelerator", "auto",
        "--num-kv-blocks", "4", "--device-memory", "64MiB", "--host-memory", "64MiB",
    )
    yield server
    server.stop_cleanly()


@pytest.fixture(scope="module")
def plain(binary):
    server = launch(binary, "one-tier", MODEL, *FLAGS)
    yield server
    server.stop_cleanly()


def body(i):
    return {
        "model": "golden",
        "prompt": f"request {i}: " + "the fox and the hen " * (1 + i % 4),
        "max_tokens": 30 + i,
        "temperature": 0 if i % 3 == 0 else 0.9,
        "seed": i,
        "logprobs": 2 if i % 4 == 0 else None,
        "presence_penalty": 0.5 if i % 5 == 0 else 0,
        "extra_body": {"service_tier": "default" if i % 8 == 7 else "flex", "ignore_eos": i % 2 == 0},
    }


def answers(server):
    client = server.openai()
    with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
        results = list(pool.map(lambda i: client.completions.create(**body(i)), range(REQUESTS)))
    return [(one.choices[0].text, one.choices[0].finish_reason, one.choices[0].logprobs, one.usage.completion_tokens) for one in results]


def test_ten_times_more_requests_than_the_device_holds_get_the_plain_answers(two_tiers, plain):
    assert answers(two_tiers) == answers(plain)
    assert two_tiers.metric("tandem_hops_total") > REQUESTS
    assert two_tiers.metric("tandem_tier_transfer_bytes_total") > 0


def test_streams_of_offloaded_requests_may_be_left(two_tiers):
    client = two_tiers.openai()
    streams = [client.completions.create(**{**body(8 * i + 8), "max_tokens": 200, "stream": True}) for i in range(12)]
    for i, stream in enumerate(streams):
        for _, _chunk in zip(range(3 + i), stream):
            pass
        stream.close()
    assert until(two_tiers.is_idle)


def test_nothing_is_left_when_all_is_quiet(two_tiers):
    assert until(two_tiers.is_idle)
    assert two_tiers.metric("tandem_hops_in_flight") == 0
    assert two_tiers.metric("tandem_offloaded_sequences") == 0
    assert two_tiers.metric("tandem_host_kv_blocks_in_use") == 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--host-memory", "1GiB"), ("--emulate-accelerator",)),
        (("--timeline-out", "x.json"), ("--emulate-accelerator",)),
        (("--emulate-accelerator", "auto", "--threads", "2", "--device-memory", "64MiB", "--host-memory", "64MiB"), ("--threads", "cores=N")),
        (("--emulate-accelerator", "auto"), ("--device-memory", "--host-memory")),
        (("--emulate-accelerator", "pace=h200,hollow", "--device-memory", "64MiB", "--host-memory", "64MiB"), ("hollow", "makes its numbers up")),
        (("--emulate-accelerator", "cores=0", "--device-memory", "64MiB", "--host-memory", "64MiB"), ("cores",)),
        (("--emulate-accelerator", "auto", "--device-memory", "64MiB", "--host-memory", "1KiB"), ("--host-memory",)),
        (("--emulate-accelerator", "auto", "--device-memory", "64MiB", "--host-memory", "64MiB", "--record-out", "x"), ("--record-out",)),
    ],
)
def test_flags_that_do_not_fit_are_refused_by_name(binary, flags, words):
    done = subprocess.run([str(binary), "serve", str(MODEL), *flags], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode not in (0, -6, -11)
    for word in words:
        assert word in done.stderr
