"""Memory is planned: servers whose pools take all that they are given, asked for everything that a request can ask for. Nothing that a
step needs is missing, nothing grows beyond the plan, and the answers are those of a server with room."""
import concurrent.futures
import pathlib

import pytest
from conftest import launch
from server import until

FLAGS = ("--served-model-name", "long", "--max-num-seqs", "64")
TIERS = ("--emulate-accelerator", "auto", "--device-memory", "64MiB", "--host-memory", "64MiB")
ALWAYS = ("--offload-below", "100", "--onload-above", "100")
PROMPT = [5 + (i * i + 3 * i) % 360 for i in range(3000)]


def requests():
    """By name: one for each option whose lists or results take memory in a step, then all that go together."""
    plain = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0.9, "seed": 7, "ignore_eos": True}
    biases = {str(token): (token % 9) / 10 for token in range(384)}
    penalties = {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.3}
    return {
        "echo": plain | {"prompt": PROMPT[:1000], "echo": True, "logprobs": 5},
        "prompt_logprobs": plain | {"prompt_logprobs": 20, "max_tokens": 1},
        "penalties": plain | penalties | {"n": 32},
        "counts": plain | {"presence_penalty": 0.7, "n": 32, "max_tokens": 40},
        "logit_bias": plain | {"logit_bias": biases, "n": 32},
        "min_tokens": plain | {"min_tokens": 4, "stop_token_ids": list(range(128)), "n": 32},
        "stop": plain | {"stop": ["zzzz", "yyyyy"], "n": 8},
        "logprobs": plain | {"logprobs": 20, "n": 16},
        "all": plain | penalties | {"logit_bias": biases, "min_tokens": 3, "stop_token_ids": list(range(128)), "logprobs": 20, "n": 32,
                                    "stop": ["zzzz"]},
    }


def answer(server, body):
    with server.http() as http:
        response = http.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text[:300]
    return [(choice["text"], choice["finish_reason"], choice.get("logprobs")) for choice in response.json()["choices"]]


def together(server, bodies):
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(lambda body: answer(server, body), bodies))


def planned_bytes(server, name="memory_plan_bytes"):
    with server.http() as http:
        return sum(http.get("/v1/tandem/config").json()[name].values())


def peak_bytes(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


@pytest.fixture(scope="module")
def expected(binary, long_model):
    server = launch(binary, "memory-plain", long_model, *FLAGS, "--device-memory", "1GiB")
    answers = {name: answer(server, body) for name, body in requests().items()}
    server.stop_cleanly()
    return answers


@pytest.mark.parametrize("service_tier", ["default", "flex"])
def test_pools_that_take_everything_leave_room_for_every_option(start_server, long_model, expected, service_tier):
    server = start_server(long_model, *FLAGS, *TIERS, *(ALWAYS if service_tier == "flex" else ()))
    assert planned_bytes(server) <= 64 << 20
    assert planned_bytes(server, "host_memory_plan_bytes") > 63 << 20
    for name, body in requests().items():
        assert answer(server, body | {"service_tier": service_tier}) == expected[name], name
    assert until(server.is_idle)


def test_options_of_many_requests_at_once(start_server, long_model, expected):
    server = start_server(long_model, *FLAGS, *TIERS, *ALWAYS)
    bodies = [body | {"service_tier": ("flex", "default")[i % 2]} for i in range(2) for body in requests().values()]
    assert together(server, bodies) == 2 * list(expected.values())
    if server.metric("tandem_visits_total") == 0:
        pytest.fail("nobody visited")
    assert until(server.is_idle)


@pytest.mark.parametrize("threads", [2, 64])
def test_one_tier_stays_within_its_plan(start_server, long_model, expected, threads):
    server = start_server(long_model, *FLAGS, "--threads", str(threads), "--device-memory", "512MiB", "--num-kv-blocks", "200")
    before = server.resident_bytes()
    long_prompt = {"prompt": [5 + (i * 7) % 360 for i in range(6000)], "max_tokens": 1, "temperature": 0}
    answer(server, long_prompt)  # a chunk of few rows, and one of many, over a long context
    answer(server, long_prompt | {"prompt": long_prompt["prompt"] + [9] * 496, "max_tokens": 3})
    for name in ("penalties", "all", "echo"):
        assert answer(server, requests()[name]) == expected[name], name
    # What is beside the plan: requests, answers and what stands in queues.
    assert peak_bytes(server) - before <= planned_bytes(server) + (24 << 20)
