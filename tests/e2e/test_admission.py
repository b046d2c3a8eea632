"""Admission: latency-sensitive requests whose targets are out of reach get a 429 with the forecast before anything is computed."""
import json
import random
import subprocess
import threading

import openai
import pytest

from conftest import launch
from server import until

FLAGS = ("--max-model-len", "8192", "--max-num-batched-tokens", "256", "--max-num-seqs", "16", "--device-memory", "512MiB")


@pytest.fixture(scope="module")
def profile(binary, long_model, tmp_path_factory):
    path = tmp_path_factory.mktemp("profile") / "long.json"
    run = subprocess.run([str(binary), "profile", str(long_model), *FLAGS, "-o", str(path), "--time", "4s", "--held-out", "5"],
                         capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    return path


@pytest.fixture(scope="module")
def guarded(binary, long_model, profile):
    server = launch(binary, "guarded", long_model, *FLAGS, "--served-model-name", "long", "--policy", "omniserve", "--profile", profile)
    yield server
    server.stop_cleanly()


def body(tokens, **fields):
    """A prompt that no other request shares."""
    return {"model": "long", "prompt": [random.randrange(3, 380) for _ in range(tokens)], "max_tokens": 4, "ignore_eos": True} | fields


def ask(server, tokens, **fields):
    with server.http() as http:
        return http.post("/v1/completions", json=body(tokens, **fields))


def explained(server, tokens, **fields):
    answer = ask(server, tokens, tandem={"explain": True}, **fields)
    assert answer.status_code == 200, answer.text
    return answer.json()["usage"]["tandem"]["choices"][0]


@pytest.mark.core
def test_what_is_let_in_carries_its_forecast(guarded):
    choice = explained(guarded, 200, slo={"ttft_ms": 20000, "tpot_ms": 5000})
    assert 0 < choice["forecast_ttft_ms"] < 20000 and choice["slo"]["met"]
    assert "forecast_ttft_ms" not in explained(guarded, 200, service_tier="flex", slo={"ttft_ms": 1})
    assert guarded.metric("tandem_admission_decisions_total", answer="accepted") >= 1
    assert guarded.metric("tandem_ttft_forecast_seconds_total") > 0
    assert guarded.metric("tandem_ttft_forecast_error_ratio_count") >= 1


@pytest.mark.core
def test_impossible_targets_are_refused_and_not_to_be_tried_again(guarded):
    answer = ask(guarded, 2000, slo={"ttft_ms": 0.01})
    assert answer.status_code == 429
    error = answer.json()["error"]
    assert error["code"] == "slo_ttft_impossible" and error["type"] == "rate_limit_error"
    assert error["forecast"]["ttft_ms"] > 0.01 and error["forecast"]["ttft_target_ms"] == 0.01
    assert "idle" in error["message"]
    assert answer.headers["x-should-retry"] == "false" and "retry-after" not in answer.headers
    answer = ask(guarded, 20, slo={"tpot_ms": 0.001})
    assert answer.json()["error"]["code"] == "slo_tpot_impossible"
    assert ask(guarded, 20, slo={"tpot_ms": 0}).status_code == 400
    assert ask(guarded, 20, slo={"ttft_ms": 0.01}, service_tier="flex").status_code == 200


def occupied(server, tokens=7000, max_tokens=4):
    """Long requests that are being computed, each with a target that it keeps; (their threads, their answers)."""
    answers = []
    fields = {"slo": {"ttft_ms": 600000}, "max_tokens": max_tokens}
    threads = [threading.Thread(target=lambda: answers.append(ask(server, tokens, **fields))) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert until(lambda: server.metric("tandem_requests_running") + server.metric("tandem_requests_waiting") >= 3, every=0.002)
    return threads, answers


def test_a_busy_server_says_when_to_come_back(guarded):
    long = explained(guarded, 7000, slo={"ttft_ms": 600000})["forecast_ttft_ms"]
    short = explained(guarded, 50, slo={"ttft_ms": 600000})["forecast_ttft_ms"]
    target = max(3 * short, long / 4)
    threads, answers = occupied(guarded)
    refused = ask(guarded, 50, slo={"ttft_ms": target})
    urgent = ask(guarded, 50, slo={"ttft_ms": 600000})
    flex = ask(guarded, 50, service_tier="flex", max_tokens=1)
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert urgent.status_code == 200 and flex.status_code == 200
    assert refused.status_code == 429, refused.text
    error = refused.json()["error"]
    assert error["code"] == "slo_ttft" == refused.headers["x-llm-d-request-dropped-reason"]
    assert error["forecast"]["ttft_ms"] > target == pytest.approx(error["forecast"]["ttft_target_ms"], abs=0.001)
    assert "by forecast its first token would come after" in error["message"]
    assert refused.headers["x-should-retry"] == "true"
    assert int(refused.headers["retry-after"]) >= 1
    assert int(refused.headers["retry-after-ms"]) == pytest.approx(error["forecast"]["retry_after_ms"], abs=1.001)
    assert guarded.metric("tandem_admission_decisions_total", answer="refused", reason="slo_ttft") >= 1
    assert guarded.metric("vllm:admission_rejections_total", reason="slo_ttft") >= 1
    assert guarded.metric("tandem_http_rejected_total", reason="slo_ttft") >= 1
    # Idle again, it is let in.
    assert until(guarded.is_idle)
    assert ask(guarded, 50, slo={"ttft_ms": target}).status_code == 200


def test_the_openai_client_sees_a_rate_limit(guarded):
    with pytest.raises(openai.RateLimitError) as caught:
        guarded.openai().completions.create(model="long", prompt=[5] * 500, max_tokens=2, extra_body={"slo": {"ttft_ms": 0.01}})
    assert caught.value.code == "slo_ttft_impossible" and caught.value.body["forecast"]["ttft_ms"] > 0


def test_a_stream_is_refused_before_its_status_line(guarded):
    with guarded.http() as http, http.stream("POST", "/v1/completions", json=body(500, stream=True, slo={"ttft_ms": 0.01})) as answer:
        assert answer.status_code == 429 and answer.headers["content-type"].startswith("application/json")


def test_without_admission_everybody_is_let_in(start_server, long_model, profile):
    server = start_server(long_model, *FLAGS, "--served-model-name", "long", "--policy", "omniserve", "--profile", profile, "--admission", "off")
    choice = explained(server, 500, slo={"ttft_ms": 0.01})
    assert not choice["slo"]["met"] and "forecast_ttft_ms" not in choice
    assert not [name for name, _, _ in server.metrics() if name.startswith("tandem_admission_decisions")]


def test_a_flood_leaves_what_was_let_in_its_targets(guarded):
    """Many at once: some are let in, the others are told so, and nobody hangs."""
    one = explained(guarded, 300, slo={"ttft_ms": 600000})["forecast_ttft_ms"]
    answers = []

    def fire():
        with guarded.http() as http:
            answers.append(http.post("/v1/completions", json=body(300, slo={"ttft_ms": 12 * one}, tandem={"explain": True})))

    threads = [threading.Thread(target=fire) for _ in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    codes = [answer.status_code for answer in answers]
    assert len(codes) == 60 and set(codes) <= {200, 429}
    assert codes.count(200) >= 5 and codes.count(429) >= 1, codes
    assert until(guarded.is_idle)


def test_a_run_with_refusals_replays(binary, start_server, long_model, profile, tmp_path):
    record = tmp_path / "run.jsonl"
    server = start_server(long_model, *FLAGS, "--served-model-name", "long", "--policy", "omniserve", "--profile", profile, "--record-out", record)
    threads, _ = occupied(server, 2000, max_tokens=2000)  # on a fast machine prompts alone end too soon
    codes = [ask(server, 50, slo={"ttft_ms": ttft}).status_code for ttft in (0.01, 1, 600000, 0.01)]
    for thread in threads:
        thread.join()
    server.stop_cleanly()
    assert codes[0] == codes[3] == 429 and codes[2] == 200
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    refusals = [line for line in lines if "refusal" in line]
    assert len(refusals) == codes.count(429)
    assert refusals[0]["reason"] == "slo_ttft_impossible" and refusals[0]["ttft_ns"] == 10000
    assert all("forecast_ns" in line for line in lines if "arrival" in line)
    run = subprocess.run([str(binary), "replay", str(record), "--model", str(long_model)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0 and "identical" in run.stdout, run.stdout + run.stderr
