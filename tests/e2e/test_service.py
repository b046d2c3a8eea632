"""What surrounds the completions: models, health, metrics, ids, CORS, keys, overload, drain."""
import json
import shutil
import signal
import socket
import threading
import time

import httpx
import openai
import pytest
from conftest import GOLDENS
from server import parse_metrics, until

pytestmark = pytest.mark.core


def test_models_are_listed_with_their_context(server):
    with server.http() as http:
        reply = http.get("/v1/models").json()
    assert reply["object"] == "list"
    assert [m["id"] for m in reply["data"]] == ["golden", "golden-alias"]
    for model in reply["data"]:
        assert model["object"] == "model"
        assert model["max_model_len"] == 512
    assert server.openai().models.retrieve("golden").id == "golden"


def test_health_ping_version_and_load(server):
    with server.http() as http:
        assert http.get("/health").status_code == 200
        assert http.get("/ping").status_code == 200
        assert http.post("/ping").status_code == 200
        assert http.get("/version").json().keys() == {"version", "commit"}
        assert isinstance(http.get("/load").json()["server_load"], int)


def test_the_effective_configuration_is_served(server):
    with server.http() as http:
        config = http.get("/v1/tandem/config").json()
    assert config
    text = str(config).lower()
    assert "512" in text and "float32" in text


def test_tokenize_and_detokenize_are_inverse(server):
    with server.http() as http:
        for text in ("Hello, world!", "Größe 日本語 🙂", "  two  spaces\n"):
            reply = http.post("/tokenize", json={"model": "golden", "prompt": text}).json()
            assert reply["count"] == len(reply["tokens"])
            assert reply["max_model_len"] == 512
            assert http.post("/detokenize", json={"model": "golden", "tokens": reply["tokens"]}).json()["prompt"] == text
        chat = http.post("/tokenize", json={"model": "golden", "messages": [{"role": "user", "content": "Hi"}]}).json()
        assert chat["count"] > 5
        assert http.post("/detokenize", json={"model": "golden", "tokens": [10**6]}).status_code == 400


def test_metrics_count_what_was_served(server):
    def counters():
        return {name: server.metric(name) for name in ("vllm:prompt_tokens_total", "vllm:generation_tokens_total",
                                                       "vllm:time_to_first_token_seconds_count", "vllm:e2e_request_latency_seconds_count")}

    before = counters()
    server.openai().completions.create(model="golden", prompt=[65] * 10, max_tokens=7, extra_body={"ignore_eos": True})
    after = until(lambda: (now := counters())["vllm:e2e_request_latency_seconds_count"] > before["vllm:e2e_request_latency_seconds_count"] and now)
    assert after["vllm:prompt_tokens_total"] - before["vllm:prompt_tokens_total"] == 10
    assert after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"] == 7
    assert after["vllm:time_to_first_token_seconds_count"] - before["vllm:time_to_first_token_seconds_count"] == 1
    assert server.metric("vllm:request_success_total", finished_reason="length") >= 1
    assert until(server.is_idle)


def test_metrics_are_well_formed_and_in_both_name_sets(server):
    with server.http() as http:
        response = http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    names = {name for name, _, _ in parse_metrics(response.text)}
    assert any(name.startswith("tandem_") for name in names)
    assert {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"} <= names
    typed = {line.split()[2] for line in response.text.splitlines() if line.startswith("# TYPE")}
    assert typed, "no # TYPE lines"


def test_the_request_id_comes_back(server):
    with server.http() as http:
        reply = http.get("/v1/models", headers={"X-Request-Id": "abc-123"})
        assert reply.headers["x-request-id"] == "abc-123"
        made_up = http.post("/v1/completions", json={"model": "golden", "prompt": "x", "max_tokens": 1})
        assert made_up.headers["x-request-id"]
        split = http.get("/v1/models", headers={"X-Request-Id": "x" * 5000})
        assert len(split.headers.get("x-request-id", "")) < 5000


def test_a_cors_preflight_is_answered(server):
    with server.http() as http:
        reply = http.options("/v1/chat/completions", headers={
            "Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"})
        assert reply.status_code in (200, 204)
        assert reply.headers["access-control-allow-origin"] == "http://localhost:3000"
        assert "POST" in reply.headers["access-control-allow-methods"]
        foreign = http.get("/v1/models", headers={"Origin": "http://example.com"})
        assert "access-control-allow-origin" not in foreign.headers  # without a key, only pages of this machine


def test_one_connection_serves_many_requests(server):
    with server.http() as http:
        for _ in range(20):
            reply = http.post("/v1/completions", json={"model": "golden", "prompt": "x", "max_tokens": 1})
            assert reply.status_code == 200


def test_a_missing_or_wrong_key_is_401_and_health_stays_open(start_server, long_model):
    server = start_server(long_model, "--api-key", "secret-one", "--served-model-name", "long")
    body = {"model": "long", "prompt": "x", "max_tokens": 1}
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic secret-one"}, {"Authorization": "Bearer secret-one2"}):
        reply = server.post("/v1/completions", json=body, headers=headers)
        assert reply.status_code == 401
        assert "secret-one" not in reply.text
        assert server.get("/v1/models", headers=headers).status_code == 401
    assert server.get("/health").status_code == 200
    assert server.get("/ping").status_code == 200
    with pytest.raises(openai.AuthenticationError):
        server.openai("nope").models.list()
    assert server.openai().completions.create(**body).choices
    server.stop_cleanly()
    assert "secret-one" not in server.log.read_text(errors="replace").replace("--api-key secret-one", "")


def test_a_full_queue_is_429_with_a_time_to_come_back(start_server, long_model):
    server = start_server(long_model, "--max-num-seqs", "1", "--max-queue", "1", "--served-model-name", "long")
    body = {"model": "long", "prompt": "x", "max_tokens": 16000, "ignore_eos": True, "stream": True}
    with server.http() as http, http.stream("POST", "/v1/completions", json=body) as first:
        assert first.status_code == 200
        pieces = first.iter_raw()  # kept: httpx hangs up when it is collected
        next(pieces)  # it runs
        waiting = threading.Thread(target=lambda: queue_one(server, body))
        waiting.start()
        assert until(lambda: server.metric("vllm:num_requests_waiting") == 1)
        reply = http_post(server, body)
        assert reply.status_code == 429, reply.text
        assert float(reply.headers["retry-after"]) >= 0
        assert reply.json()["error"]["message"]
        with pytest.raises(openai.RateLimitError):
            server.openai().completions.create(model="long", prompt="x", max_tokens=1)
    waiting.join()
    assert until(server.is_idle)
    assert http_post(server, body | {"max_tokens": 1, "stream": False}).status_code == 200


def test_more_prompts_than_the_queue_takes_are_not_called_overload(start_server, long_model):
    server = start_server(long_model, "--max-queue", "4", "--served-model-name", "long")
    reply = http_post(server, {"model": "long", "max_tokens": 1, "prompt": ["x"] * 5})
    assert reply.status_code == 400 and "retry-after" not in reply.headers
    assert "5 prompts, and the queue takes 4 (--max-queue)" in reply.text
    assert http_post(server, {"model": "long", "max_tokens": 1, "prompt": ["x"] * 4}).status_code == 200


def test_a_second_signal_ends_answers_with_an_error(start_server, long_model):
    server = start_server(long_model, "--served-model-name", "long")
    body = {"model": "long", "prompt": "x", "max_tokens": 16000, "ignore_eos": True}
    whole = []
    asker = threading.Thread(target=lambda: whole.append(http_post(server, body)))
    with server.http() as http, http.stream("POST", "/v1/completions", json=body | {"stream": True}) as streamed:
        pieces = streamed.iter_raw()
        next(pieces)
        asker.start()
        assert until(lambda: server.metric("vllm:num_requests_running") == 2)
        server.process.send_signal(signal.SIGTERM)
        assert until(lambda: "draining:" in server.log.read_text())
        server.process.send_signal(signal.SIGTERM)
        rest = b"".join(pieces)
    asker.join()
    assert b"the server stopped before the answer was complete" in rest and rest.endswith(b"data: [DONE]\n\n")
    assert whole[0].status_code == 503 and whole[0].json()["error"]["code"] == "service_unavailable"
    assert server.process.wait(30) == 0
    assert server.log.read_text().count("outcome=failed") == 2


def http_post(server, body):
    with server.http() as http:
        return http.post("/v1/completions", json=body)


def queue_one(server, body):
    """A streaming request that leaves as soon as its first event is there."""
    with server.http() as http, http.stream("POST", "/v1/completions", json=body) as response:
        assert response.status_code == 200
        for piece in response.iter_raw():
            if b"data:" in piece:
                return


def test_sigterm_finishes_what_runs_and_takes_nothing_new(start_server, long_model):
    server = start_server(long_model, "--served-model-name", "long")
    client = server.openai()
    stream = client.completions.create(model="long", prompt="x", max_tokens=3000, stream=True, extra_body={"ignore_eos": True},
                                       stream_options={"include_usage": True})
    next(iter(stream))
    server.process.send_signal(signal.SIGTERM)

    def refused():
        try:
            reply = server.post("/v1/completions", json={"model": "long", "prompt": "x", "max_tokens": 1}, timeout=10)
        except httpx.TransportError:
            return True
        return reply.status_code == 503

    assert until(refused, seconds=10)
    *_, last = stream
    assert last.usage.completion_tokens == 3000
    assert server.stop() == 0


def test_the_log_names_requests_and_never_prompts(start_server, long_model):
    server = start_server(long_model, "--served-model-name", "long")
    server.openai().completions.create(model="long", prompt="SECRETPROMPT", max_tokens=2, extra_headers={"X-Request-Id": "trace-me-77"})
    server.stop_cleanly()
    log = server.log.read_text(errors="replace")
    assert "SECRETPROMPT" not in log
    assert "trace-me-77" in log
    assert "/v1/completions" in log


def test_a_slow_reader_does_not_hold_up_others(long_server):
    body = {"model": "long", "prompt": "x", "max_tokens": 12000, "ignore_eos": True, "stream": True}
    with long_server.http() as http, http.stream("POST", "/v1/completions", json=body) as response:
        pieces = response.iter_raw()  # kept: httpx hangs up when it is collected
        next(pieces)  # and then reads no more
        began = time.monotonic()
        reply = long_server.openai().completions.create(model="long", prompt="y", max_tokens=5)
        assert reply.choices and time.monotonic() - began < 60
    assert until(long_server.is_idle)


def test_the_folders_generation_config_gives_the_defaults(start_server, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(GOLDENS / "llama-gqa-rope3-f32", folder)

    def serve(**defaults):
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 372} | defaults))
        return start_server(folder, "--served-model-name", "m").openai()

    def chat(client, **fields):
        return client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}], **fields)

    def words(client, **fields):
        return client.completions.create(model="m", prompt="Hello", max_tokens=24, extra_body={"ignore_eos": True} | fields)

    plain = serve(max_new_tokens=5)
    assert chat(plain, extra_body={"ignore_eos": True}).usage.completion_tokens == 5
    assert chat(plain, max_tokens=9, extra_body={"ignore_eos": True}).usage.completion_tokens == 9
    greedy = words(plain, temperature=0)
    assert words(plain).choices[0].text != greedy.choices[0].text
    first = plain.completions.create(model="m", prompt="Hello", max_tokens=1, temperature=0, logprobs=1,
                                     extra_body={"return_tokens_as_token_ids": True}).choices[0].logprobs.tokens[0]

    cold = serve(temperature=0.0, top_p=0.9)
    assert words(cold).choices[0].text == greedy.choices[0].text
    assert words(cold, temperature=1.0, top_p=1.0, seed=1).choices[0].text != greedy.choices[0].text
    assert words(serve(top_k=1)).choices[0].text == greedy.choices[0].text

    # Penalties count for a greedy choice, too.
    penalised = words(cold, repetition_penalty=1.8).choices[0].text
    assert penalised != greedy.choices[0].text
    assert words(serve(temperature=0, repetition_penalty=1.8)).choices[0].text == penalised

    ends = serve(eos_token_id=[372, int(first.split(":")[1])])
    reply = ends.completions.create(model="m", prompt="Hello", max_tokens=24, temperature=0)
    assert reply.choices[0].finish_reason == "stop" and reply.usage.completion_tokens <= 1


def test_bodies_are_not_read_without_a_key_and_unread_answers_are_bounded(binary, start_server):
    """Clients without a key hold no memory for bodies; answers that nobody reads count and are bounded while nobody reads."""
    server = start_server(GOLDENS / "llama-gqa-rope3-f32", "--api-key", "secret", "--max-answer-bytes", "9MiB", "--max-request-bytes", "32MiB")
    held = []
    for _ in range(4):
        keyless = socket.create_connection(("127.0.0.1", server.port))
        keyless.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 30000000\r\n\r\n" + b" " * 1000)
        assert keyless.recv(4096).startswith(b"HTTP/1.1 401")
        held.append(keyless)
    assert server.metric("tandem_http_request_bytes_held") == 0
    # An answer has 7 MB, and counts whole until the kernel has taken the last byte; the kernel takes 4 MB at most. So one answer waits, and there is
    # no room for a second. One alone is below 3/4 of --max-answer-bytes; above that, slow readers are cut off after 5 s.
    body = json.dumps({"prompt": "b" * 1_000_000, "return_token_strs": True}).encode()
    ask = b"POST /tokenize HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer secret\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    before = server.resident_bytes()
    for _ in range(4):
        unread = socket.socket()
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        unread.connect(("127.0.0.1", server.port))
        unread.sendall(ask)
        held.append(unread)
    assert until(lambda: any(reason == "answer_memory" for name, labels, _ in server.metrics() if name == "tandem_http_rejected_total"
                             for reason in [labels["reason"]]))
    assert 0 < server.metric("tandem_http_unsent_bytes") <= 9 << 20
    assert until(lambda: server.metric("tandem_http_request_bytes_held") == 0)
    if binary.parent.name not in ("asan", "tsan"):  # they keep freed memory
        assert server.resident_bytes() - before < 30 << 20  # 14 MiB; 34 without a bound
    for connection in held:
        connection.close()
    assert until(lambda: server.metric("tandem_http_unsent_bytes") == 0)
    server.stop_cleanly()
