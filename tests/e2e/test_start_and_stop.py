"""What a server says while it starts and runs, in both forms of the log, and how it ends when it is told to before it is ready."""
import json
import signal
import subprocess
import time

import httpx
import pytest
from conftest import GOLDENS, LOGS
from server import Server, until

LLAMA = GOLDENS / "llama-gqa-rope3-f32"


@pytest.fixture(scope="module")
def json_server(binary):
    server = Server(binary, LLAMA, LOGS / "json-log.log", ("--log-format", "json", "--served-model-name", "golden"),
                    {"TANDEM_SERVICE_HOST": "10.0.0.1"}).wait_ready()
    yield server
    server.stop_cleanly()


def test_every_line_of_a_json_log_is_one_object(json_server):
    json_server.openai().completions.create(model="golden", prompt="Hello", max_tokens=4, extra_headers={"X-Request-Id": "mine"})
    assert until(lambda: '"mine"' in json_server.log.read_text())
    lines = [json.loads(line) for line in json_server.log.read_text().splitlines()]
    assert all({"time", "level", "message"} <= line.keys() for line in lines)
    assert {"info", "warning"} <= {line["level"] for line in lines}
    access = next(line for line in lines if line.get("request_id") == "mine")
    assert (access["message"], access["status"], access["completion_tokens"]) == ("access", 200, 4)
    assert access["duration_ms"] > 0
    plan = [line for line in lines if line["message"].startswith("memory plan")]
    with json_server.http() as http:
        config = http.get("/v1/tandem/config").json()
    assert {line["what"]: line["bytes"] for line in plan} == config["memory_plan_bytes"]
    assert next(line["configuration"] for line in lines if "configuration" in line)["kv_blocks"] == config["kv_blocks"]
    start = next(line for line in lines if "version" in line)
    assert start["version"] and "commit" in start


def test_every_line_of_a_text_log_has_time_and_level_and_none_is_long(start_server):
    server = start_server(LLAMA)
    lines = server.log.read_text().splitlines()
    for line in lines:
        date, clock, level, _ = line.split(" ", 3)
        assert len(date) == 10 and clock.count(":") == 2 and level in ("info", "warning"), line
        assert len(line) < 400, line
    assert sum("memory plan:" in line for line in lines) >= 4
    assert "/chat/completions" in next(line for line in lines if " try: " in line)


def test_build_and_process_are_in_the_metrics(server):
    builds = [labels for name, labels, _ in server.metrics() if name == "tandem_build_info"]
    assert len(builds) == 1 and builds[0]["version"] and builds[0]["commit"]
    resident = server.metric("process_resident_memory_bytes")
    assert 0.5 < resident / server.resident_bytes() < 2
    assert 0 < server.metric("process_open_fds") < server.metric("process_max_fds")
    assert abs(server.metric("process_start_time_seconds") - time.time()) < 24 * 3600
    before = server.metric("process_cpu_seconds_total")
    server.openai().completions.create(model="golden", prompt="Hello", max_tokens=200, extra_body={"ignore_eos": True})
    assert until(lambda: server.metric("process_cpu_seconds_total") > before)


def test_the_longest_choice_of_a_request_is_counted_once(start_server):
    server = start_server(LLAMA)
    server.openai().completions.create(model=server.model_name(), prompt="Hello", max_tokens=5, n=3, extra_body={"ignore_eos": True})
    assert until(lambda: server.metric("vllm:request_max_num_generation_tokens_count") == 1)
    assert server.metric("vllm:request_max_num_generation_tokens_sum") == 5
    assert server.metric("vllm:request_generation_tokens_count") == 3
    assert server.metric("vllm:num_requests_waiting_by_reason", reason="capacity") == 0
    assert server.metric("vllm:admission_rejections_total", reason="max_num_queued_reqs") == 0


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_step_times_are_measured_ends_the_server_soon(binary, tmp_path, asked):
    server = Server(binary, LLAMA, LOGS / f"stop-{asked}.log", ("--policy", "omniserve", "--profile", tmp_path / "new.json"))

    def loading():
        try:
            return server.get("/ready", timeout=5).status_code == 503
        except httpx.TransportError:
            return False

    assert until(loading)
    time.sleep(0.5)  # of the ten seconds and more that measuring takes
    assert server.process.poll() is None
    server.process.send_signal(asked)
    assert server.process.wait(30) == 0
    Server.running.remove(server)
    log = server.log.read_text()
    assert log.endswith("stopped while loading\n"), "not when measuring was done"
    assert "ready: " not in log
    assert not list(tmp_path.iterdir()), "no profile, and no half of one"


def test_a_stop_while_a_batch_loads_ends_it_soon(binary, tmp_path):
    batch, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    line = {"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {"model": "llama-gqa-rope3-f32", "prompt": "Hello", "max_tokens": 4}}
    batch.write_text(json.dumps(line) + "\n")
    run = subprocess.Popen([str(binary), "batch", "run", str(batch), "-o", str(output), "--model", str(LLAMA), "--policy", "omniserve", "--profile",
                            str(tmp_path / "new.json")], stderr=subprocess.PIPE, text=True)
    assert until(output.exists)
    time.sleep(0.5)  # of the ten seconds and more that measuring takes
    run.send_signal(signal.SIGTERM)
    said = run.stderr.read()
    assert run.wait(30) == 130
    assert "stopped while loading" in said and not (tmp_path / "new.json").exists()
