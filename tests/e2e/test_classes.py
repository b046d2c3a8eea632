"""Classes, levels and SLOs on every door: body, headers, key file, flags; what is echoed, explained, refused and counted."""
import json
import subprocess

import openai
import pytest
from conftest import GOLDENS
from server import sse_events, until

MODEL = GOLDENS / "llama-gqa-rope3-f32"
KEYS = """\
# name        what its requests get and may claim
key-plain
key-chat      level=-2 ttft=30s
key-batch     max-class=best_effort min-level=0
key-modest    class=flex min-ttft=500ms+1ms/tok min-tpot=50ms
"""
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def classed(binary, tmp_path_factory):
    """A server with keys of several kinds and targets that its tiny model keeps."""
    from conftest import launch
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(KEYS)
    server = launch(binary, "classed", MODEL, "--served-model-name", "golden", "--policy", "sarathi", "--api-key-file", keys, "--ttft-slo", "20s+1ms/tok,max=30s",
                    "--tpot-slo", "10s", "--objective", "chat level=-3 ttft=12s", "--objective", "night class=flex", env={"TANDEM_API_KEY": "key-env"})
    server.key = "key-plain"
    server.keys_file = keys
    yield server
    server.stop_cleanly()


def chat(server, key="key-plain", headers=None, **fields):
    extra = {name: fields.pop(name) for name in ("slo", "tandem", "priority") if name in fields}
    return server.openai(key=key).chat.completions.create(model="golden", messages=MESSAGES, max_tokens=6, extra_headers=headers, extra_body=extra,
                                                          **fields)


def explained(server, key="key-plain", headers=None, **fields):
    return chat(server, key, headers, tandem={"explain": True}, **fields).usage.tandem


@pytest.mark.core
def test_the_class_that_is_used_is_echoed_whoever_asks(classed):
    assert chat(classed).service_tier == "default"
    assert chat(classed, service_tier="auto").service_tier == "default"
    assert chat(classed, service_tier="priority").service_tier == "priority"
    assert chat(classed, service_tier="flex").service_tier == "flex"
    assert chat(classed, "key-batch").service_tier == "flex"
    assert chat(classed, "key-batch", service_tier="default").service_tier == "flex"
    assert chat(classed, "key-modest").service_tier == "flex"
    assert chat(classed, "key-modest", service_tier="priority").service_tier == "priority"
    text = classed.openai().completions.create(model="golden", prompt="a", max_tokens=2, extra_body={"service_tier": "flex"})
    assert text.service_tier == "flex"


@pytest.mark.core
def test_an_objective_stands_between_the_request_and_the_key(classed):
    def of(name, key="key-plain", **fields):
        return explained(classed, key, {"x-llm-d-inference-objective": name}, **fields)

    wanted = of("chat", "key-chat")
    assert (wanted["class"], wanted["level"]) == ("latency_sensitive", -3)
    assert wanted["choices"][0]["slo"]["ttft_ms"] == pytest.approx(12000)
    assert of("night")["class"] == "best_effort"
    assert of("night", service_tier="priority")["class"] == "latency_sensitive", "the request itself comes first"
    capped = of("chat", "key-batch")
    assert (capped["class"], capped["level"]) == ("best_effort", 0), "the key bounds it"
    assert of("nobody knows it")["class"] == "latency_sensitive"


def test_every_chunk_of_a_stream_names_it(classed):
    for options in ({}, {"service_tier": "flex"}):
        with chat(classed, stream=True, **options) as stream:
            tiers = [chunk.service_tier for chunk in stream]
        assert len(tiers) > 3 and set(tiers) == {options.get("service_tier", "default")}


@pytest.mark.core
def test_targets_come_from_body_then_header_then_key_then_server(classed):
    def targets(*arguments, **fields):
        slo = explained(classed, *arguments, **fields)["choices"][0]["slo"]
        return slo.get("ttft_ms"), slo.get("tpot_ms")

    prompt = chat(classed).usage.prompt_tokens
    assert targets() == (pytest.approx(20000), pytest.approx(10000))
    assert targets("key-chat") == (pytest.approx(30000), pytest.approx(10000))
    new = {"x-llm-d-slo-ttft-ms": "15000", "x-llm-d-slo-tpot-ms": "5000.5"}
    old = {"x-slo-ttft-ms": "14000", "x-slo-tpot-ms": "4000"}
    assert targets("key-chat", old) == (14000, 4000)
    assert targets("key-chat", old | new) == (15000, 5000.5)
    assert targets("key-chat", new, slo={"tpot_ms": 3000}) == (15000, 3000)
    assert targets("key-chat", new, slo={"ttft": "1s+10s/tok", "tpot": "2s"}) == (10000 * prompt, 2000)
    assert targets("key-chat", new, slo={"ttft": "1s+10s/tok,max=12s"})[0] == 12000


def test_a_best_effort_request_has_no_targets_but_its_own(classed):
    assert "slo" not in explained(classed, service_tier="flex")["choices"][0]
    own = explained(classed, service_tier="flex", slo={"ttft_ms": 60000})
    assert own["class"] == "best_effort"
    assert own["choices"][0]["slo"] == {"ttft_ms": 60000, "met": True}


@pytest.mark.core
def test_the_explanation_says_how_a_request_was_served(classed):
    tandem = explained(classed, "key-chat")
    assert tandem["class"] == "latency_sensitive" and tandem["level"] == -2
    (choice,) = tandem["choices"]
    assert choice["index"] == 0 and choice["slo"]["met"] is True
    assert 0 <= choice["queue_ms"] <= choice["ttft_ms"] < 20000
    assert 0 < choice["mean_tbt_ms"] <= choice["max_tbt_ms"]
    assert choice["attention_tokens"]["device"] >= 6 and choice["attention_tokens"]["host"] == 0
    assert (choice["hops"], choice["parked_ms"], choice["preemptions"]) == (0, 0, 0)
    missed = explained(classed, slo={"ttft_ms": 0.001})["choices"][0]["slo"]
    assert missed == {"ttft_ms": 0.001, "tpot_ms": 10000, "met": False}
    assert explained(classed, priority=9)["level"] == 9
    several = explained(classed, n=3)["choices"]
    assert [choice["index"] for choice in several] == [0, 1, 2]


def test_a_stream_is_explained_in_its_usage_chunk(classed):
    body = {"model": "golden", "messages": MESSAGES, "max_tokens": 3, "stream": True, "tandem": {"explain": True}}
    with classed.http(headers={"Authorization": "Bearer key-plain"}) as http, http.stream("POST", "/v1/chat/completions", json=body) as response:
        events = [json.loads(event) for event in sse_events(response) if event != "[DONE]"]
    assert events[-1]["choices"] == [] and events[-1]["usage"]["tandem"]["choices"][0]["slo"]["met"] is True
    assert not any((event.get("usage") or {}).get("tandem") for event in events[:-1])
    assert not hasattr(chat(classed).usage, "tandem")


@pytest.mark.parametrize("key, fields, param", [
    ("key-batch", {"service_tier": "priority"}, "service_tier"),
    ("key-batch", {"priority": -1}, "priority"),
    ("key-modest", {"slo": {"ttft_ms": 400}}, "slo.ttft_ms"),
    ("key-modest", {"slo": {"ttft": "400ms"}}, "slo.ttft"),
    ("key-modest", {"slo": {"tpot_ms": 49}}, "slo.tpot_ms"),
    ("key-modest", {"headers": {"x-slo-tpot-ms": "49"}}, "x-slo-tpot-ms"),
], ids=str)
def test_what_a_key_may_not_claim_is_forbidden_by_name(classed, key, fields, param):
    with pytest.raises(openai.PermissionDeniedError) as caught:
        chat(classed, key, **fields)
    assert caught.value.status_code == 403
    assert caught.value.body["code"] == "class_not_allowed" and caught.value.body["type"] == "permission_error"
    assert caught.value.body["param"] == param and param in caught.value.body["message"]


@pytest.mark.core
@pytest.mark.parametrize("slo, param", [
    ({"ttft_ms": 0}, "slo.ttft_ms"), ({"ttft_ms": -1}, "slo.ttft_ms"), ({"ttft_ms": "500"}, "slo.ttft_ms"), ({"ttft_ms": 1e30}, "slo.ttft_ms"),
    ({"ttft_ms": [5]}, "slo.ttft_ms"), ({"tpot_ms": 0.0000001}, "slo.tpot_ms"), ({"tpot_ms": True}, "slo.tpot_ms"), ({"ttft": "fast"}, "slo.ttft"),
    ({"ttft": "1s", "ttft_ms": 1}, "slo.ttft_ms"), ({"ttl": 5}, "slo.ttl"), ("500ms", "slo"),
], ids=str)
def test_wrong_targets_are_refused_by_name(classed, slo, param):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(classed, slo=slo)
    assert caught.value.body["param"] == param and param.split(".")[-1] in caught.value.body["message"]


@pytest.mark.parametrize("value", ["", "0", "-5", "nan", "inf", "1e3", "500ms", "99999999999"])
def test_wrong_headers_are_refused_by_name(classed, value):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(classed, headers={"x-llm-d-slo-ttft-ms": value})
    assert caught.value.body["param"] == "x-llm-d-slo-ttft-ms"


def test_nan_is_no_json_and_therefore_refused(classed):
    with classed.http(headers={"Authorization": "Bearer key-plain"}) as http:
        for number in ("NaN", "Infinity", "1e999"):
            answer = http.post("/v1/completions", content='{"prompt":"a","slo":{"ttft_ms":' + number + "}}")
            assert answer.status_code == 400, number


def test_attainment_and_latencies_are_counted_by_class(binary, start_server):
    server = start_server(MODEL, "--served-model-name", "golden", "--policy", "sarathi", "--tpot-slo", "10s")
    outcomes = lambda service_class, outcome: server.metric("tandem_slo_requests_total", **{"class": service_class, "outcome": outcome})
    assert outcomes("latency_sensitive", "met") == 0
    chat(server, key=None)
    chat(server, key=None, slo={"ttft_ms": 0.001})
    chat(server, key=None, service_tier="flex")
    chat(server, key=None, service_tier="flex", slo={"tpot_ms": 0.001})
    assert until(lambda: outcomes("best_effort", "missed") == 1)
    assert outcomes("latency_sensitive", "met") == 1 and outcomes("latency_sensitive", "missed") == 1
    assert outcomes("best_effort", "met") == 0
    misses = lambda service_class, target: server.metric("tandem_slo_misses_total", **{"class": service_class, "target": target})
    assert (misses("latency_sensitive", "ttft"), misses("latency_sensitive", "tpot")) == (1, 0)
    assert (misses("best_effort", "ttft"), misses("best_effort", "tpot")) == (0, 1)
    for service_class in ("latency_sensitive", "best_effort"):
        assert server.metric("tandem_time_to_first_token_seconds_count", **{"class": service_class}) == 2
        assert server.metric("tandem_inter_token_latency_seconds_count", **{"class": service_class}) == 10
    assert server.metric("vllm:inter_token_latency_seconds_count") == 20


def test_the_servers_class_can_be_best_effort(start_server):
    server = start_server(MODEL, "--served-model-name", "golden", "--policy", "sarathi", "--default-class", "flex", "--ttft-slo", "5s")
    assert chat(server, key=None).service_tier == "flex"
    assert chat(server, key=None, service_tier="priority").service_tier == "priority"
    with server.http() as http:
        config = http.get("/v1/tandem/config").json()
    assert (config["default_class"], config["ttft_slo"], config["tpot_slo"]) == ("best_effort", "5s", None)


def test_keys_read_again_have_their_new_terms(binary, classed, start_server, tmp_path):
    import signal
    keys = tmp_path / "keys"
    keys.write_text("one max-class=flex\n")
    server = start_server(MODEL, "--served-model-name", "golden", "--api-key-file", keys)
    assert chat(server, "one").service_tier == "flex"
    keys.write_text("one class=nonsense\n")
    server.process.send_signal(signal.SIGHUP)
    assert until(lambda: "the keys stay as they are" in server.log_tail())
    assert chat(server, "one").service_tier == "flex"
    keys.write_text("one level=4\n")
    server.process.send_signal(signal.SIGHUP)
    assert until(lambda: chat(server, "one").service_tier == "default")
    assert "one" not in [line.split()[-1] for line in server.log_tail().splitlines() if "key" in line]


@pytest.mark.parametrize("flags, named", [
    (["--default-class", "gold"], "--default-class"), (["--ttft-slo", "0"], "--ttft-slo"), (["--ttft-slo", "500"], "--ttft-slo"),
    (["--ttft-slo", "5s,max=1s"], "--ttft-slo"), (["--tpot-slo", "nan"], "--tpot-slo"), (["--tpot-slo", "25h"], "--tpot-slo"),
], ids=str)
def test_wrong_flags_end_the_start_with_their_name(binary, flags, named):
    done = subprocess.run([str(binary), "serve", str(MODEL), "--port", "0", *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and named in done.stdout + done.stderr


def test_wrong_key_files_end_the_start_and_tell_no_key(binary, tmp_path):
    keys = tmp_path / "keys"
    for text in ("hush-1 class=gold", "hush-1 hush-2", "hush-1 tpot=0", "hush-1 class=priority max-class=flex"):
        keys.write_text(text + "\n")
        done = subprocess.run([str(binary), "serve", str(MODEL), "--port", "0", "--api-key-file", str(keys)], capture_output=True, text=True,
                              timeout=60)
        said = done.stdout + done.stderr
        assert done.returncode == 2 and "line 1" in said and "hush" not in said


def test_a_record_keeps_class_and_targets_and_replays(binary, start_server, tmp_path):
    record = tmp_path / "run.jsonl"
    server = start_server(MODEL, "--served-model-name", "golden", "--record-out", record, "--policy", "sarathi", "--ttft-slo", "9s+1ms/tok,max=10s")
    chat(server, key=None, priority=3, slo={"tpot_ms": 250})
    chat(server, key=None, service_tier="flex")
    server.stop_cleanly()
    arrivals = [line for line in map(json.loads, record.read_text().splitlines()) if '"best_effort":' in json.dumps(line)]
    text = [json.dumps(line) for line in arrivals]
    assert len(text) == 2
    assert '"tpot_ns": 250000000' in text[0] and "9000000000, 1000000, 10000000000" in text[0] and '"level": 3' in text[0]
    assert '"best_effort": true' in text[1] and "ttft_ns" not in text[1]
    done = subprocess.run([str(binary), "replay", str(record), "--model", str(MODEL)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.core
def test_bench_serve_sends_targets_and_reports_attainment_by_class(binary, start_server, tmp_path):
    server = start_server(MODEL, "--served-model-name", "golden")
    result = tmp_path / "result.json"
    done = subprocess.run(
        [str(binary), "bench", "serve", "--base-url", server.url, "--result-filename", str(result), "--request-rate", "50", "--explain",
         "--random-input-len", "20", "--random-output-len", "5",
         "--stream", "name=chat;num-prompts=10;service-tier=priority;slo-ttft=30s+1ms/tok,max=40s;slo-tpot=5s",
         "--stream", "name=strict;num-prompts=6;service-tier=priority;slo-ttft-ms=0.001",
         "--stream", "name=batch;num-prompts=8;service-tier=flex"],
        capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    classes = {one["name"]: one for one in json.loads(result.read_text())["tandem"]["classes"]}
    assert classes["chat"]["slo_attainment"] == 1 and classes["chat"]["engine_slo_attainment"] == 1
    assert classes["chat"]["goodput_targets"]["ttft"] == {"base_ms": 30000, "per_token_ms": 1, "cap_ms": 40000}
    assert classes["strict"]["slo_attainment"] == 0 and classes["strict"]["engine_slo_attainment"] == 0
    assert "slo_attainment" not in classes["batch"] and classes["batch"]["other_service_tier"] == 0
    assert 0 < classes["chat"]["engine_ttft_ms"]["percentiles"]["50"] <= classes["chat"]["ttft_ms"]["percentiles"]["50"]
    assert "By the server's own clock" in done.stdout
    assert server.metric("tandem_slo_requests_total", **{"class": "latency_sensitive", "outcome": "met"}) == 10


def test_bench_serve_refuses_targets_that_are_none(binary):
    for flags in (["--slo-ttft-ms", "0"], ["--slo-ttft", "5"], ["--slo-tpot", "0s"]):
        done = subprocess.run([str(binary), "bench", "serve", "--port", "1", *flags], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and flags[0] in done.stdout + done.stderr


def test_where_attention_ran_is_told_on_two_tiers(start_server):
    server = start_server(MODEL, "--served-model-name", "golden", "--emulate-accelerator", "auto", "--num-kv-blocks", "16",
                          "--device-memory", "64MiB", "--host-memory", "64MiB", "--offload-below", "100", "--onload-above", "100")
    layers = json.loads((MODEL / "config.json").read_text())["num_hidden_layers"]

    def told(tier):
        answer = server.openai().completions.create(model="golden", prompt="the fox", max_tokens=40, temperature=0, extra_body={
            "service_tier": tier, "ignore_eos": True, "tandem": {"explain": True}})
        return answer.usage.tandem["choices"][0]

    away, home = told("flex"), told("priority")
    assert away["attention_tokens"]["host"] > 20 and away["attention_tokens"]["host"] + away["attention_tokens"]["device"] == 40
    assert away["hops"] == layers * away["attention_tokens"]["host"] and away["parked_ms"] > 0
    assert home["attention_tokens"] == {"device": 40, "host": 0} and home["hops"] == 0 and home["parked_ms"] == 0


def test_a_batch_line_is_best_effort_and_has_its_own_level_and_targets(binary, tmp_path):
    lines = [{"prompt": "x", "max_tokens": 3, "service_tier": "priority", "priority": 2, "slo": {"ttft_ms": 0.001}, "tandem": {"explain": True}},
             {"prompt": "x", "slo": {"ttft_ms": 0}}]
    (tmp_path / "in").write_text("".join(json.dumps({"custom_id": str(i), "url": "/v1/completions", "body": body}) + "\n" for i, body in enumerate(lines)))
    subprocess.run([str(binary), "batch", "run", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--model", str(MODEL)], check=True, timeout=120,
                   capture_output=True)
    answers = {answer["custom_id"]: answer["response"] for answer in map(json.loads, (tmp_path / "out").read_text().splitlines())}
    assert answers["0"]["body"]["service_tier"] == "flex"
    tandem = answers["0"]["body"]["usage"]["tandem"]
    assert (tandem["class"], tandem["level"], tandem["choices"][0]["slo"]) == ("best_effort", 2, {"ttft_ms": 0.001, "met": False})
    assert answers["1"]["status_code"] == 400 and answers["1"]["body"]["error"]["param"] == "slo.ttft_ms"
