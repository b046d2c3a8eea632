"""Which policy a server takes when none is named, and what it does for the classes with no flags at all."""
import re
import threading

import pytest
from conftest import GOLDENS
from server import until
from test_cli import run

MODEL = GOLDENS / "llama-gqa-rope3-f32"
SMALL_STEPS = ("--max-num-seqs", "8", "--max-num-batched-tokens", "64", "--max-model-len", "128")  # short steps make a short profile


def policy_line(server):
    lines = re.findall(r"policy: (\w+) \(auto: ([^)]*)\)", server.log.read_text())
    assert len(lines) == 1, lines
    return lines[0]


def test_the_default_policy_serves_latency_sensitive_requests_first(start_server, long_model):
    server = start_server(long_model, "--served-model-name", "long", "--max-num-seqs", "4")
    assert policy_line(server)[0] == "sarathi"
    budget = re.search(r"policy: steps of up to (\d+) tokens", server.log.read_text())
    assert int(budget[1]) in (64, 128, 256, 512)
    with server.http() as http:
        config = http.get("/v1/tandem/config").json()
    assert config["policy"] == "sarathi" and config["sarathi_token_budget"] == int(budget[1])
    ended = []

    def ask(tier, name):
        server.openai().completions.create(model="long", prompt=[7] * 40, max_tokens=1500,
                                            extra_body={"ignore_eos": True, "service_tier": tier})
        ended.append(name)

    flood = [threading.Thread(target=ask, args=("flex", "flex")) for _ in range(16)]
    for thread in flood:
        thread.start()
    until(lambda: server.metric("vllm:num_requests_waiting") >= 8)
    chat = threading.Thread(target=ask, args=("priority", "chat"))
    chat.start()
    for thread in [chat, *flood]:
        thread.join()
    assert "chat" in ended[:9], "it waits for a place, not for the whole queue"


@pytest.mark.parametrize("flags", [("--ttft-slo", "5s"), ("--tpot-slo", "5s"), ("--objective", "chat ttft=5s")])
def test_a_target_makes_the_default_policy_one_that_reads_it(start_server, tmp_path_factory, flags):
    cache = tmp_path_factory.getbasetemp() / "policy-cache"  # one profile for all of them
    server = start_server(MODEL, *SMALL_STEPS, *flags, env={"XDG_CACHE_HOME": str(cache)})
    assert policy_line(server) == ("omniserve", "a TTFT or TPOT target is given")


def test_a_profile_that_lies_ready_is_used(start_server, tmp_path):
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    start_server(MODEL, *SMALL_STEPS, "--policy", "omniserve", env=env).stop_cleanly()
    server = start_server(MODEL, *SMALL_STEPS, env=env)
    assert policy_line(server) == ("omniserve", "a profile of this model on this machine lies ready")
    # One that was measured for much smaller steps is not taken.
    small = start_server(MODEL, "--max-num-batched-tokens", "65536", env=env)
    assert policy_line(small)[0] == "sarathi"


def test_two_tiers_measure_the_profile_that_omniserve_needs(start_server, tmp_path):
    server = start_server(MODEL, *SMALL_STEPS, "--policy", "omniserve", "--emulate-accelerator", "auto", "--device-memory", "64MiB", "--host-memory", "64MiB",
                          env={"XDG_CACHE_HOME": str(tmp_path)})
    assert list((tmp_path / "tandem" / "profiles").glob("*.json")), "kept for the next start"
    answer = server.openai().completions.create(model=server.openai().models.list().data[0].id, prompt="Hi", max_tokens=4)
    assert answer.usage.completion_tokens > 0


def test_a_flood_of_best_effort_fills_its_own_queue_only(start_server, long_model):
    server = start_server(long_model, "--served-model-name", "long", "--max-num-seqs", "1", "--max-queue-flex", "2")
    body = {"model": "long", "prompt": [7] * 40, "max_tokens": 2000, "ignore_eos": True}
    statuses = []

    def post(**fields):
        with server.http() as http:
            return http.post("/v1/completions", json=body | fields).status_code

    clients = [threading.Thread(target=lambda: statuses.append(post(service_tier="flex"))) for _ in range(6)]
    clients[0].start()
    until(lambda: server.metric("vllm:num_requests_running") == 1)
    for client in clients[1:]:
        client.start()
    until(lambda: statuses.count(429) >= 3)
    assert post(service_tier="priority", max_tokens=4) == 200
    for client in clients:
        client.join()
    assert statuses.count(200) == 3 and statuses.count(429) == 3


@pytest.mark.parametrize("policy, unread", [("accel_only", {"class", "level", "ttft", "tpot"}), ("sarathi", {"ttft", "tpot"})])
def test_what_the_policy_does_not_read_is_said_and_counted(start_server, policy, unread):
    server = start_server(MODEL, "--policy", policy, "--ttft-slo", "5s", "--default-class", "flex")
    log = server.log.read_text()
    assert "the policy {} plans for none".format(policy) in log
    assert ("in the order of their arrival" in log) == (policy == "accel_only")
    body = {"model": server.model_name(), "prompt": "Hi", "max_tokens": 2, "tandem": {"explain": True}}
    with server.http() as http:
        plain = http.post("/v1/completions", json=body).json()["usage"]["tandem"]
        assert plain["honoured"] is True
        assert http.post("/v1/completions", json=body | {"service_tier": "priority"}).json()["usage"]["tandem"]["honoured"] is (policy == "sarathi")
        asked = http.post("/v1/completions", json=body | {"service_tier": "priority", "priority": 3, "slo": {"ttft_ms": 9000, "tpot_ms": 900}}).json()
    assert asked["usage"]["tandem"]["honoured"] is False
    for field in ("class", "level", "ttft", "tpot"):
        assert (server.metric("tandem_claims_ignored_total", field=field) > 0) == (field in unread), field


def test_what_the_policy_reads_is_honoured(start_server, tmp_path_factory):
    cache = tmp_path_factory.getbasetemp() / "policy-cache"
    server = start_server(MODEL, *SMALL_STEPS, "--policy", "omniserve", env={"XDG_CACHE_HOME": str(cache)})
    body = {"model": server.model_name(), "prompt": "Hi", "max_tokens": 2, "tandem": {"explain": True}, "service_tier": "priority", "priority": 3,
            "slo": {"ttft_ms": 9000, "tpot_ms": 900}}
    with server.http() as http:
        assert http.post("/v1/completions", json=body).json()["usage"]["tandem"]["honoured"] is True
    assert server.metric("tandem_claims_ignored_total") == 0


def test_a_policy_for_two_tiers_says_at_start_if_there_is_one(binary):
    two_tiers = ("--emulate-accelerator", "auto", "--device-memory", "256MiB", "--host-memory", "64MiB")
    for policy, flags, said in [("lanes", (), True), ("neo", (), True), ("sarathi", (), False), ("lanes", two_tiers, False)]:
        code, text = run(binary, "serve", MODEL, "--check", "--policy", policy, *flags)
        assert code == 0, text
        assert (f"the policy {policy} moves decodes to the host tier, and this server has none" in text) == said, text
