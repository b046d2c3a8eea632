"""Two tiers at their limits, over HTTP: pools of a block or two, prompts that fit nowhere, everybody offloaded, a burst of
latency-sensitive work that takes every block. Each has a defined outcome, and no request hangs."""
import concurrent.futures
import re
import subprocess
import threading

import openai
import pytest
from conftest import GOLDENS, launch
from server import until

MODEL = GOLDENS / "llama-gqa-rope3-f32"
FLAGS = ("--served-model-name", "golden", "--max-num-seqs", "8", "--max-num-batched-tokens", "256", "--block-size", "16")
TIERS = ("--emulate-accelerator", "auto", "--device-memory", "64MiB")
ALWAYS = ("--offload-below", "100", "--onload-above", "100")


def body(i, words=2, tokens=10, best_effort=True):
    return {
        "model": "golden",
        "prompt": f"{i}: " + "fox " * words,
        "max_tokens": tokens,
        "temperature": 0.9 if i % 2 else 0,
        "seed": i,
        "extra_body": {"service_tier": "flex" if best_effort else "default", "ignore_eos": True},
    }


def answers(server, bodies):
    client = server.openai()
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(lambda one: client.completions.create(**one).choices[0].text, bodies))


def expect_nothing_left(server):
    assert until(server.is_idle)
    for name in ("tandem_offloaded_sequences", "tandem_host_kv_blocks_in_use", "tandem_hops_in_flight"):
        assert until(lambda name=name: server.metric(name) == 0), name


@pytest.fixture(scope="module")
def plain(binary):
    server = launch(binary, "limits-plain", MODEL, *FLAGS)
    yield server
    server.stop_cleanly()


def test_a_device_pool_of_two_blocks_serves_what_fits_it(start_server, plain):
    server = start_server(MODEL, *FLAGS, *TIERS, "--host-memory", "64MiB", "--num-kv-blocks", "2")
    assert server.openai().models.list().data[0].max_model_len == 32
    bodies = [body(i, words=2 + i % 3, tokens=8 + i % 5, best_effort=i % 3 != 0) for i in range(24)]
    assert answers(server, bodies) == answers(plain, bodies)
    expect_nothing_left(server)


def test_a_prompt_larger_than_the_device_pool_is_refused_with_the_number(start_server):
    server = start_server(MODEL, *FLAGS, *TIERS, "--host-memory", "64MiB", "--num-kv-blocks", "3")
    client = server.openai()
    assert client.models.list().data[0].max_model_len == 48
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(**body(0, words=100, tokens=4))
    assert refused.value.code == "context_length_exceeded"
    assert "48 tokens, and the prompt has 4" in refused.value.message
    cut = client.completions.create(**body(0, words=4, tokens=100))  # the host's room does not count
    assert (cut.usage.total_tokens, cut.choices[0].finish_reason) == (48, "length")
    assert client.completions.create(**body(0)).choices[0].text
    expect_nothing_left(server)


def test_a_host_pool_smaller_than_a_sequence_is_left_again(binary, start_server, plain):
    # What the buffers take is said where not even a block fits beside them.
    refused = subprocess.run([str(binary), "serve", str(MODEL), *FLAGS, *TIERS, "--num-kv-blocks", "32", "--host-memory", "1KiB"],
                             capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert refused.returncode == 1
    said = re.search(r"its buffers take ([\d.]+) KiB and a KV block ([\d.]+) KiB", refused.stderr)
    assert said, refused.stderr
    room = int((float(said[1]) + 2.5 * float(said[2])) * 1024)
    server = start_server(MODEL, *FLAGS, *TIERS, *ALWAYS, "--num-kv-blocks", "32", "--host-memory", str(room))
    assert 1 <= server.metric("tandem_host_kv_blocks") <= 3
    bodies = [body(i, words=3 + 4 * i, tokens=30) for i in range(6)]
    assert answers(server, bodies) == answers(plain, bodies)
    expect_nothing_left(server)


def rounds_until(server, plain, bodies, happened):
    """Sends the requests again and again, each time with the answers of the server without tiers, until happened()."""
    expected = answers(plain, bodies)
    done = threading.Event()

    def rounds():
        while not done.is_set():
            assert answers(server, bodies) == expected

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(rounds)
        try:
            assert until(lambda: running.done() or happened(), every=0)
        finally:
            done.set()
        running.result()


def test_every_sequence_may_be_offloaded(start_server, plain):
    server = start_server(MODEL, *FLAGS, *TIERS, *ALWAYS, "--host-memory", "64MiB", "--num-kv-blocks", "32")
    bodies = [body(i, words=3 + i, tokens=300) for i in range(8)]
    rounds_until(server, plain, bodies, lambda: server.metric("tandem_offloaded_sequences") == 8)
    expect_nothing_left(server)


def test_a_burst_of_latency_sensitive_work_that_takes_every_block(start_server, plain):
    server = start_server(MODEL, *FLAGS, *TIERS, "--host-memory", "64MiB", "--num-kv-blocks", "12")
    best_effort = [body(i, words=10, tokens=120) for i in range(24)]
    burst = [body(100 + i, words=15, tokens=100, best_effort=False) for i in range(8)]  # ten blocks each
    client = server.openai()
    with concurrent.futures.ThreadPoolExecutor(len(best_effort)) as pool:
        running = [pool.submit(lambda one: client.completions.create(**one).choices[0].text, one) for one in best_effort]
        concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)  # the others run or wait
        assert answers(server, burst) == answers(plain, burst)
        assert [one.result() for one in running] == answers(plain, best_effort)
    expect_nothing_left(server)
