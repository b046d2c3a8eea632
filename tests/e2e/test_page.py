"""The page at / and the status that feeds it, over HTTP. test_page_browser.py opens it in a browser."""
import base64
import concurrent.futures
import hashlib
import re
import time

import pytest
from conftest import ROOT
from page_servers import MODEL, everything, keyed, slow_model  # noqa: F401 (fixtures)
from server import until

SOURCES = ROOT / "src" / "api" / "page"


def status_of(server):
    with server.http() as http:
        answer = http.get("/v1/tandem/status")
    assert answer.status_code == 200 and answer.headers["cache-control"] == "no-store"
    return answer.json()


@pytest.mark.core
def test_the_page_is_one_small_document_of_its_own(server):
    with server.http() as http:
        answer = http.get("/")
        head = http.head("/")
    assert answer.status_code == 200 and answer.headers["content-type"] == "text/html; charset=utf-8"
    assert len(answer.content) < 100_000
    assert head.status_code == 200 and head.content == b"" and head.headers["content-length"] == str(len(answer.content))
    html = answer.text
    outside = set(re.findall(r"https?://[^\s'\"<>]+", html)) - {"http://www.w3.org/2000/svg"}
    assert not outside
    assert not re.search(r"\bsrc=|@import|url\(|<iframe|<object", html)
    assert re.findall(r'<link [^>]*href="(.{5})', html) == ["data:"]


@pytest.mark.core
def test_nothing_but_the_pages_own_scripts_and_styles_may_run(server):
    with server.http() as http:
        answer = http.get("/")
    policy = {part.split()[0]: part.split()[1:] for part in answer.headers["content-security-policy"].split("; ")}

    def hashes(tag):
        blocks = re.findall(f"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        return ["'sha256-" + base64.b64encode(hashlib.sha256(block.encode()).digest()).decode() + "'" for block in blocks]

    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == ["'none'"]
    assert policy["script-src"] == hashes("script") and len(policy["script-src"]) == 3
    assert policy["style-src"] == hashes("style") and len(policy["style-src"]) == 1
    assert policy["connect-src"] == ["'self'"] and policy["require-trusted-types-for"] == ["'script'"]
    assert "unsafe" not in str(policy)
    assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer" and answer.headers["cache-control"] == "no-cache"


def test_other_methods_and_paths_are_refused(server):
    with server.http() as http:
        answer = http.post("/", json={})
        assert answer.status_code == 405 and answer.headers["allow"] == "GET"
        assert http.get("/index.html").status_code == 404
        assert http.post("/v1/tandem/status", json={}).status_code == 405


def test_without_ui_there_is_no_page(start_server):
    server = start_server(MODEL, "--no-ui")
    with server.http() as http:
        answer = http.get("/")
        assert answer.status_code == 404 and answer.json() == http.get("/no/such/path").json()
        assert http.get("/v1/tandem/config").json()["no_ui"] is True
    assert status_of(server)["state"] == "ready"


@pytest.mark.core
def test_the_page_is_open_and_what_it_shows_needs_the_key(keyed):
    with keyed.http() as http:
        assert http.get("/", headers={"Authorization": ""}).status_code == 200
        for wrong in ("", "Bearer sk-other"):
            refused = http.get("/v1/tandem/status", headers={"Authorization": wrong})
            assert refused.status_code == 401 and refused.json()["error"]["code"] == "invalid_api_key"
        assert "sk-page" not in http.get("/").text + http.get("/v1/tandem/status").text


@pytest.mark.core
def test_the_status_says_what_each_model_does(server):
    status = status_of(server)
    assert status["state"] == "ready" and status["version"] and status["connections"] >= 1 and status["answers"] == 0
    process = status["process"]
    assert process["resident_bytes"] > 1 << 20 and process["cpu_seconds"] > 0
    assert abs(time.time() - process["started_unix_seconds"]) < 3600
    (model,) = status["models"]
    assert model["name"] == "golden" and model["policy"] == "sarathi"
    before = model["metrics"]
    assert before["requests_running"] == 0 and before["kv_blocks"] > 0 and "host_kv_blocks" not in before
    server.openai().completions.create(model="golden", prompt="Hello", max_tokens=5, extra_body={"service_tier": "flex", "ignore_eos": True, "slo": {"ttft_ms": 60000}})
    after = status_of(server)["models"][0]["metrics"]
    assert after["generation_tokens_total"] == before["generation_tokens_total"] + 5
    assert after["step_seconds"]["count"] > before["step_seconds"]["count"] and after["step_seconds"]["sum"] > 0

    def of_class(metrics, name, **labels):
        return next(one for one in metrics[name] if {"class": "best_effort", **labels}.items() <= one.items())

    assert of_class(after, "inter_token_latency_seconds")["count"] == of_class(before, "inter_token_latency_seconds")["count"] + 4
    assert of_class(after, "slo_requests_total", outcome="met")["value"] == of_class(before, "slo_requests_total", outcome="met")["value"] + 1
    assert of_class(after, "requests_waiting_by_class")["value"] == 0


def test_waiting_sequences_are_counted_by_class(slow_model, start_server):
    server = start_server(slow_model, "--max-num-seqs", "1", "--max-model-len", "2048", "--device-memory", "512MiB")
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        client, model = server.openai(), server.model_name()
        tiers = ["priority"] + ["flex"] * 3 + ["priority"] * 2
        answers = [pool.submit(client.completions.create, model=model, prompt="Hello", max_tokens=50, extra_body={"service_tier": tier, "ignore_eos": True}) for tier in tiers]

        def waiting():
            metrics = status_of(server)["models"][0]["metrics"]
            by_class = {one["class"]: one["value"] for one in metrics["requests_waiting_by_class"]}
            assert set(by_class) == {"latency_sensitive", "best_effort"}
            return by_class["best_effort"] >= 2 and by_class["latency_sensitive"] >= 1 and sum(by_class.values()) == metrics["requests_waiting"]

        assert until(waiting)
        assert all(answer.result().choices[0].finish_reason == "length" for answer in answers)


def test_all_that_the_panel_reads_is_there(everything):
    (model,) = status_of(everything)["models"]
    script = (SOURCES / "panel.js").read_text()
    read = set(re.findall(r"\b(?:m|now|then|one\.m)\.([a-z]\w*_\w+)", script))
    read |= set(re.findall(r'\b(?:series|total|valueOf)\(\w+, "(\w+)"', script)) | set(re.findall(r'\bof\("(\w+)"', script))
    assert len(read) > 25 and {"visits_total", "kv_blocks", "last_ttft_forecast_seconds", "regime"} <= read
    # These begin with the first event of their kind.
    late = {"regime", "step_time_error_ratio", "step_time_predicted_seconds_total", "step_time_measured_seconds_total"}
    assert read - late <= set(model["metrics"])
    assert model["metrics"]["last_ttft_forecast_seconds"] > 0


def test_polls_are_not_logged_but_refused_ones_are(start_server):
    server = start_server(MODEL, "--api-key", "sk-log")
    with server.http() as http:
        for _ in range(5):
            assert http.get("/v1/tandem/status").status_code == 200
        http.get("/v1/tandem/status", headers={"Authorization": "Bearer wrong"})
        http.get("/version")
    assert until(lambda: "path=/version" in server.log.read_text())
    lines = [line for line in server.log.read_text().splitlines() if "path=/v1/tandem/status" in line]
    assert [line.count("status=401") for line in lines] == [0, 1]  # the first answer of a connection, and the refused one


def test_a_viewer_costs_less_than_a_hundredth_of_a_core(everything):
    """An open page asks once a second, so the time of one answer is the share of a core."""
    polls = 300
    with everything.http() as http:
        http.get("/v1/tandem/status")
        began = status_of(everything)["process"]["cpu_seconds"]
        for _ in range(polls):
            assert http.get("/v1/tandem/status").status_code == 200
        spent = status_of(everything)["process"]["cpu_seconds"] - began
    print(f"{1000 * spent / polls:.2f} ms a poll")
    assert spent / polls < 0.01
