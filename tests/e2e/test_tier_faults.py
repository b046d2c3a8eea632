"""Faults planted into the second tier of a whole server (--emulate-accelerator faults=...): workers that throw, answer late, twice or
with something old, hang, get stuck inside a kernel for ever; copies that are held back. What must hold: every best-effort request
ends with its plain text or fails alone with an error that says so, latency-sensitive ones notice nothing, nothing is left over, and
the server stops cleanly."""
import concurrent.futures
import time

import httpx
import openai
import pytest
from conftest import GOLDENS, launch
from server import until

MODEL = GOLDENS / "llama-gqa-rope3-f32"
FLAGS = ("--served-model-name", "golden", "--max-num-seqs", "32", "--max-num-batched-tokens", "256")
TIERS = ("--num-kv-blocks", "8", "--device-memory", "64MiB", "--host-memory", "64MiB", "--hop-patience", "100ms",
         "--offload-below", "100", "--onload-above", "100")  # every best-effort decode goes to the host
REQUESTS = 24
SECONDS = 60  # no request may take longer, whatever was planted


def is_best_effort(i):
    return i % 4 != 3


def body(i):
    return {
        "model": "golden",
        "prompt": f"request {i}: " + "the fox and the hen " * (1 + i % 3),
        "max_tokens": 24 + i,
        "temperature": 0 if i % 3 == 0 else 0.9,
        "seed": i,
        "extra_body": {"service_tier": "flex" if is_best_effort(i) else "default", "ignore_eos": True},
    }


def answer(client, i):
    """The request's text, or the error that it got."""
    try:
        text, finish = "", None
        for chunk in client.completions.create(**body(i), stream=True, timeout=SECONDS):
            for choice in chunk.choices:
                text += choice.text
                finish = choice.finish_reason or finish
        return text, finish
    except openai.APIError as error:
        return error.message, "error"


def answers(server):
    client = server.openai()
    with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
        return list(pool.map(lambda i: answer(client, i), range(REQUESTS)))


@pytest.fixture(scope="module")
def expected(binary):
    server = launch(binary, "faults-plain", MODEL, *FLAGS)
    yield answers(server)
    server.stop_cleanly()


def start(start_server, faults, *more):
    return start_server(MODEL, *FLAGS, *TIERS, *more, "--emulate-accelerator", f"faults={faults}")


def check(server, expected, may_fail=False):
    """Every answer is the plain one, or, where it may be, the error of a best-effort request alone."""
    failed = 0
    for i, (got, plain) in enumerate(zip(answers(server), expected, strict=True)):
        if may_fail and is_best_effort(i) and got[1] == "error":
            assert "the host failed to compute" in got[0]
            failed += 1
        else:
            assert got == plain, f"request {i}"
    assert until(server.is_idle)
    for name in ("tandem_offloaded_sequences", "tandem_host_kv_blocks_in_use", "tandem_hops_in_flight"):
        assert until(lambda name=name: server.metric(name) == 0), name
    return failed


@pytest.mark.parametrize("faults", ["throw:60", "late:40", "twice:300", "outdated:300", "hold:30", "throw:20+late:20+twice:100+outdated:100+hold:50"])
@pytest.mark.parametrize("seed", [1, 2])
def test_faults_that_pass_change_no_answer(start_server, expected, faults, seed):
    server = start(start_server, f"{faults},fault-seed={seed}")
    assert check(server, expected) == 0
    assert server.metric("tandem_hops_total") > REQUESTS
    if "throw" in faults or "late" in faults:
        assert server.metric("tandem_hop_doubts_total") > 0


@pytest.mark.parametrize("fault", ["throw", "hang", "stuck"])
def test_with_all_workers_gone_every_request_is_answered_by_the_accelerator(start_server, expected, fault):
    server = start(start_server, f"{fault}:1000")
    assert check(server, expected, may_fail=True) < REQUESTS / 2
    assert server.metric("tandem_hop_doubts_total") > 0
    assert server.metric("tandem_host_suspended") == 1
    if fault == "stuck":
        assert server.metric("tandem_host_workers_lost") >= 1
        assert server.metric("tandem_host_kv_blocks_out_of_use") >= 1
    hops = server.metric("tandem_hops_total")
    assert check(server, expected) == 0, "while the host is left alone nobody is sent there"
    assert server.metric("tandem_hops_total") == hops


@pytest.mark.parametrize("fault", ["hang", "stuck"])
def test_workers_that_go_one_by_one_cost_nobody_an_answer(start_server, expected, fault):
    server = start(start_server, f"{fault}:3")
    for _ in range(2):
        check(server, expected, may_fail=True)


def test_a_latency_sensitive_request_does_not_wait_for_a_hung_host(start_server, expected):
    server = start(start_server, "hang:1000", "--hop-patience", "8s")
    with server.http() as http:
        hung = body(0)
        with http.stream("POST", "/v1/completions", json={**hung, **hung.pop("extra_body"), "extra_body": None, "stream": True}) as stream:
            assert stream.status_code == 200
            assert until(lambda: server.metric("tandem_hops_in_flight") == 1)
            began = time.monotonic()
            assert answer(server.openai(), 3) == expected[3]
            assert time.monotonic() - began < 6, "it waited for the host's hop"
    # Its client has left: its blocks are free although its worker never answers.
    assert until(lambda: server.metric("tandem_offloaded_sequences") == 0, 60)
    assert until(server.is_idle, 60)


def test_planted_faults_are_said_in_the_log_and_in_the_configuration(start_server):
    server = start(start_server, "throw:1+hold:2")
    assert "FAULTS ARE PLANTED" in server.log.read_text()
    with server.http() as http:
        assert "FAULT throw in 1/1000, FAULT hold in 2/1000" in http.get("/v1/tandem/config").text


def test_a_server_stops_while_its_workers_are_stuck(start_server):
    server = start(start_server, "stuck:1000", "--drain-timeout", "1s")
    with server.http() as http:
        request = body(0)
        request.update(request.pop("extra_body"))
        with pytest.raises(httpx.HTTPError), http.stream("POST", "/v1/completions", json={**request, "max_tokens": 400, "stream": True}) as stream:
            began = time.monotonic()
            server.stop_cleanly()
            assert time.monotonic() - began < 30
            stream.read()
            raise httpx.HTTPError("ended whole")
