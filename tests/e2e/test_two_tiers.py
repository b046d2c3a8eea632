"""Two tiers on this machine: --emulate-accelerator with little device memory and much host memory, through HTTP. What must hold is
that answers are those of a plain server, whatever was offloaded when, and that nothing is left over at the end."""
import concurrent.futures
import json
import subprocess
import threading

import pytest
from conftest import GOLDENS, launch
from server import until

MODEL = GOLDENS / "llama-gqa-rope3-f32"
FLAGS = ("--served-model-name", "golden", "--max-num-seqs", "64", "--max-num-batched-tokens", "256")
REQUESTS = 40


@pytest.fixture(scope="module", params=["piggyback", "overlap", "lanes"])
def two_tiers(binary, request):
    server = launch(
        binary, f"two-tiers-{request.param}", MODEL, *FLAGS, "--emulate-accelerator", "auto", "--policy", request.param,
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


def test_a_prefix_that_only_the_host_holds_is_copied_and_counts_as_cached(binary, start_server, plain, tmp_path):
    """A flex request's answer is decoded on the host and leaves its prompt there; requests that need the whole device crowd its copy
    there out; then the same prompt comes again, alone and with others. The run is also replayed."""
    record = tmp_path / "run.jsonl"
    server = start_server(MODEL, *FLAGS, "--emulate-accelerator", "auto", "--num-kv-blocks", "8", "--block-size", "32", "--device-memory",
                          "64MiB", "--host-memory", "64MiB", "--offload-below", "100", "--onload-above", "100", "--record-out", record)

    def ask(on, prompt, tokens, tier):
        return on.openai().completions.create(model="golden", prompt=prompt, max_tokens=tokens, temperature=0, logprobs=1,
                                              extra_body={"service_tier": tier, "ignore_eos": True})

    prompt = [1 + i * 7 % 90 for i in range(150)]
    crowd = [1 + i * 11 % 90 for i in range(200)]
    tail = [5, 6, 7]
    expected = ask(plain, prompt + tail, 20, "default").choices[0]
    assert ask(server, prompt, 8, "flex").usage.prompt_tokens_details.cached_tokens == 0
    ask(server, crowd, 50, "default")
    assert until(server.is_idle)
    again = ask(server, prompt + tail, 20, "default")
    assert again.usage.prompt_tokens_details.cached_tokens == 4 * 32
    assert (again.choices[0].text, again.choices[0].logprobs) == (expected.text, expected.logprobs)
    assert server.metric("tandem_prefix_blocks_fetched_total") == 4
    # Crowded out again, and wanted by several of both classes at once, one of whom does not wait for it.
    ask(server, crowd[::-1], 50, "default")
    stream = server.openai().completions.create(model="golden", prompt=prompt, max_tokens=50, stream=True)
    stream.close()
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        some = list(pool.map(lambda i: ask(server, prompt + tail, 20, "flex" if i % 2 else "default"), range(6)))
    for one in some:
        assert (one.choices[0].text, one.choices[0].logprobs) == (expected.text, expected.logprobs)
    assert until(server.is_idle)
    server.stop_cleanly()
    done = subprocess.run([str(binary), "replay", str(record), "--model", str(MODEL)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--host-memory", "1GiB"), ("--emulate-accelerator",)),
        (("--timeline-out", "x.json"), ("--emulate-accelerator",)),
        (("--emulate-accelerator", "auto", "--threads", "2", "--device-memory", "64MiB", "--host-memory", "64MiB"), ("--threads", "cores=N")),
        (("--emulate-accelerator", "auto"), ("--device-memory", "--host-memory")),
        (("--emulate-accelerator", "pace=h200,hollow", "--device-memory", "64MiB", "--host-memory", "64MiB"), ("hollow", "makes its numbers up")),
        (("--emulate-accelerator", "cores=0", "--device-memory", "64MiB", "--host-memory", "64MiB"), ("--emulate-accelerator: ", "cores")),
        (("--emulate-accelerator", "auto", "--device-memory", "64MiB", "--host-memory", "1KiB"), ("--host-memory",)),
    ],
)
def test_flags_that_do_not_fit_are_refused_by_name(binary, flags, words):
    done = subprocess.run([str(binary), "serve", str(MODEL), *flags], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode not in (0, -6, -11)
    for word in words:
        assert word in done.stderr


def test_a_run_on_two_tiers_replays_exactly(binary, start_server, tmp_path):
    for name, spec in {"plain": "auto", "faulty": "faults=throw:400+hold:20"}.items():
        record = tmp_path / f"{name}.jsonl"
        server = start_server(MODEL, *FLAGS, "--emulate-accelerator", spec, "--num-kv-blocks", "8", "--device-memory", "64MiB",
                              "--host-memory", "64MiB", "--offload-below", "100", "--onload-above", "100", "--record-out", record)
        assert server.get("/v1/tandem/config").json()["emulate_accelerator"] == spec
        answers(server)
        stream = server.openai().completions.create(**{**body(0), "max_tokens": 300, "stream": True})
        next(iter(stream))
        stream.close()
        server.stop_cleanly()
        lines = [json.loads(line) for line in record.read_text().splitlines()]
        assert sum(len(line.get("visitors", [])) for line in lines) > 20
        assert any("done" in line for line in lines)
        assert any(("left" if name == "plain" else "failed") in line for line in lines)
        done = subprocess.run([str(binary), "replay", str(record), "--model", str(MODEL)], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_record_of_two_tiers_that_was_changed_ends_with_an_error(binary, start_server, tmp_path):
    record = tmp_path / "run.jsonl"
    server = start_server(MODEL, *FLAGS, "--emulate-accelerator", "auto", "--num-kv-blocks", "8", "--device-memory", "64MiB",
                          "--host-memory", "64MiB", "--offload-below", "100", "--onload-above", "100", "--record-out", record)
    answers(server)
    server.stop_cleanly()
    lines = [json.loads(line) for line in record.read_text().splitlines()]

    def forged(**change):
        out, done = [], False
        for line in lines:
            if not done and change.keys() & line.keys():
                done, line = True, {**line, **change}
            out.append(json.dumps(line))
        assert done
        (tmp_path / "forged.jsonl").write_text("\n".join(out) + "\n")
        return subprocess.run([str(binary), "replay", str(tmp_path / "forged.jsonl"), "--model", str(MODEL)], capture_output=True, text=True, timeout=120)

    for change in ({"visitors": [[99999, 1]]}, {"visitors": [["x"]]}, {"left": [77777]}, {"left": 5},
                   {"tiers": 0, "failed": [3]}, {"tiers": 0, "lost": [1 << 40]}, {"tiers": 0, "found": [0]}, {"host_memory_bytes": 1}):
        done = forged(**change) if "host_memory_bytes" not in change else forged(config={**lines[0]["config"], **change})
        assert done.returncode in (1, 2), f"{change}: {done.returncode} {done.stdout} {done.stderr}"


def test_the_regime_is_named_while_sequences_decode_on_the_host(start_server):
    server = start_server(MODEL, *FLAGS, "--emulate-accelerator", "auto", "--device-memory", "64MiB", "--host-memory", "64MiB",
                          "--offload-below", "100", "--onload-above", "100")
    request = {**body(0), "max_tokens": 400}
    seen = threading.Event()

    def ask_again_and_again():
        while not seen.is_set():
            server.openai().completions.create(**request)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        running = [pool.submit(ask_again_and_again) for _ in range(8)]
        try:
            known = until(lambda: [labels["regime"] for name, labels, value in server.metrics() if name == "tandem_regime" and value == 1])
        finally:
            seen.set()
        for one in running:
            one.result()
    assert len(known) == 1 and known[0] in {"host_memory", "host_bandwidth", "link", "device"}


def test_a_paced_run_says_whether_it_is_valid(start_server):
    server = start_server(MODEL, *FLAGS, "--emulate-accelerator", "pace=h200,slowdown=20", "--device-memory", "64MiB", "--host-memory", "64MiB")
    server.openai().completions.create(**body(0))
    assert server.metric("tandem_paced_ops", ended="all") > 0
    assert server.metric("tandem_paced_ops", ended="late") >= 0
    server.stop_cleanly()
    assert "paced run (paced as h200, 20 times slower)" in server.log.read_text()
    assert ": valid" in server.log.read_text() or "INVALID as a measurement" in server.log.read_text()
