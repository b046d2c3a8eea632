"""`tandem bench serve` against a real server: exact lengths, traces, classes, failures, the report, Ctrl-C."""
import json
import os
import re
import signal
import subprocess

import pytest
from conftest import SHARED
from server import until

# What vLLM's own tools read from a result.
VLLM_KEYS = """date backend model_id tokenizer_id num_prompts request_rate burstiness max_concurrency duration completed failed
total_input_tokens total_output_tokens request_throughput request_goodput output_throughput total_token_throughput
mean_ttft_ms median_ttft_ms std_ttft_ms p99_ttft_ms mean_tpot_ms p99_tpot_ms mean_itl_ms p99_itl_ms mean_e2el_ms""".split()


def bench(binary, server, tmp_path, *flags, code=0):
    """Runs it and returns its result."""
    done = subprocess.run(
        [str(binary), "bench", "serve", "--base-url", server.url, "--result-filename", str(tmp_path / "result.json"), *map(str, flags)],
        capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads((tmp_path / "result.json").read_text())


@pytest.fixture
def trace():
    path = SHARED / "traces" / "azure_llm_2023_conv.csv"
    if not path.is_file():
        message = f"{path} is missing; set TANDEM_SHARED"
        if os.environ.get("CI") == "true":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    return path


@pytest.mark.core
def test_lengths_are_exact_and_the_result_has_vllms_keys(binary, server, tmp_path):
    result = bench(binary, server, tmp_path, "--request-rate", 50, "--num-prompts", 20, "--random-input-len", 60, "--random-output-len", 7,
                   "--save-detailed", "--goodput", "ttft:60000", "tpot:60000", "e2el:60000")
    assert [key for key in VLLM_KEYS if key not in result] == []
    assert result["completed"] == 20 and result["failed"] == 0
    assert result["input_lens"] == [60] * 20 and result["output_lens"] == [7] * 20
    assert result["total_input_tokens"] == 1200 and result["total_output_tokens"] == 140
    assert all(len(gaps) == 6 for gaps in result["itls"])
    assert result["request_goodput"] == pytest.approx(20 / result["duration"])
    ours = result["tandem"]
    assert ours["generator"]["other_input_lengths"] == 0 and ours["generator"]["short_outputs"] == 0
    assert ours["machine"]["cpus"] >= 1 and "bench serve" in ours["command"]
    assert ours["server"]["config"]["model"]
    assert server.is_idle()


def test_chat_lengths_are_exact_too(binary, server, tmp_path):
    result = bench(binary, server, tmp_path, "--backend", "openai-chat", "--num-prompts", 8, "--input-len-dist", "uniform:80:120",
                   "--random-output-len", 5, "--save-detailed")
    assert result["input_lens"] == [request["planned_input_tokens"] for request in result["tandem"]["requests"]]
    assert result["output_lens"] == [5] * 8


def test_a_seed_fixes_the_schedule(binary, server, tmp_path):
    flags = ["--request-rate", 100, "--num-prompts", 15, "--input-len-dist", "lognormal:50:30", "--random-output-len", 2, "--save-detailed"]
    one, two, other = ([(request["planned_s"], request["planned_input_tokens"]) for request in
                        bench(binary, server, tmp_path, *flags, "--seed", seed)["tandem"]["requests"]] for seed in (3, 3, 4))
    assert one == two != other


def test_a_slice_of_a_real_trace_is_replayed(binary, server, tmp_path, trace):
    report = tmp_path / "report.html"
    result = bench(binary, server, tmp_path, "--dataset-path", trace, "--trace-start", "10min", "--trace-duration", "20s", "--trace-rate", 3,
                   "--trace-speed", 8, "--length-scale", 0.1, "--max-input-len", 200, "--max-output-len", 20, "--save-detailed",
                   "--mix", "priority:0.7,flex:0.3", "--goodput", "ttft:60000", "--report", report)
    assert result["failed"] == 0 and result["completed"] == result["num_prompts"] > 20
    assert [group["name"] for group in result["tandem"]["classes"]] == ["latency sensitive", "best effort"]
    assert sum(group["completed"] for group in result["tandem"]["classes"]) == result["completed"]
    assert all(group["completed"] > 0 for group in result["tandem"]["classes"])
    assert sum(result["tandem"]["timeline"]["sent"]) == result["completed"]
    assert result["tandem"]["generator"]["other_input_lengths"] == 0
    page = report.read_text()
    assert "<svg" in page and page.rstrip().endswith("</html>")
    assert re.findall(r'(?:src|href)\s*=\s*"?(?!#)|@import|url\(', page) == [], "the report must need nothing from outside"


def test_shared_prefixes_reach_the_servers_cache(binary, server, tmp_path):
    (tmp_path / "trace.jsonl").write_text("".join(
        json.dumps({"timestamp": 50 * i, "input_length": 300, "output_length": 2, "hash_ids": [1, 2, 100 + i]}) + "\n" for i in range(6)))
    flags = ["--dataset-path", tmp_path / "trace.jsonl", "--trace-block-size", 128]
    before = server.metric("vllm:prefix_cache_hits_total")
    assert bench(binary, server, tmp_path, *flags)["completed"] == 6
    assert server.metric("vllm:prefix_cache_hits_total") - before >= 5 * 192


def test_streams_have_their_own_loads_and_targets(binary, server, tmp_path):
    result = bench(binary, server, tmp_path, "--random-output-len", 3,
                   "--stream", "name=chat;num-prompts=10;request-rate=40;service-tier=priority;random-input-len=20;goodput=ttft:60000 tpot:60000",
                   "--stream", "name=batch;num-prompts=5;service-tier=flex;random-input-len=90")
    chat, batch = result["tandem"]["classes"]
    assert (chat["name"], chat["completed"], chat["input_tokens"]) == ("chat", 10, 200)
    assert (batch["name"], batch["completed"], batch["input_tokens"]) == ("batch", 5, 450)
    assert chat["slo_attainment"] == 1 and "slo_attainment" not in batch


def test_several_models_are_told_apart(binary, server, tmp_path):
    result = bench(binary, server, tmp_path, "--num-prompts", 20, "--random-input-len", 10, "--random-output-len", 2,
                   "--model", "golden", "--model", "golden-alias", "--model", "no-such-model")
    models = {model["name"]: model for model in result["tandem"]["models"]}
    assert models["golden"]["completed"] > 0 and models["golden-alias"]["completed"] > 0
    assert models["no-such-model"]["failures"] == {"http_404": models["no-such-model"]["planned"]}


def test_failures_are_counted_by_reason(binary, server, tmp_path):
    result = bench(binary, server, tmp_path, "--num-prompts", 6, "--input-len-dist", "uniform:700:800", "--random-output-len", 2, code=1)
    assert result["completed"] == 0 and result["tandem"]["all"]["failures"] == {"http_400": 6}
    assert any("http_400" in warning for warning in result["tandem"]["warnings"])


def test_ctrl_c_writes_what_was_measured(binary, long_server, tmp_path):
    path = tmp_path / "result.json"
    process = subprocess.Popen(
        [str(binary), "bench", "serve", "--base-url", long_server.url, "--request-rate", "20", "--num-prompts", "5000", "--random-input-len",
         "20", "--random-output-len", "4", "--result-filename", str(path)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "prompts:" in line:  # the next requests are the load
            break
    before = long_server.metric("vllm:request_success_total")
    assert until(lambda: long_server.metric("vllm:request_success_total") > before + 10, 60)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    result = json.loads(path.read_text())
    assert result["completed"] > 0 and result["tandem"]["interrupted"]
    assert result["tandem"]["all"]["sent"] < 5000
    assert sum(result["tandem"]["timeline"]["planned"]) < 5000 and max(result["tandem"]["timeline"]["planned"]) < 1000


def test_keys_are_sent_and_never_written(binary, start_server, long_model, tmp_path):
    server = start_server(long_model, "--api-key", "secret-key-1")
    report = tmp_path / "report.html"
    small = ["--num-prompts", 2, "--random-input-len", 9, "--random-output-len", 2, "--report", report]
    result = bench(binary, server, tmp_path, "--api-key", "secret-key-1", "--header", "X-Api-Key: secret-key-2", "--header=Cookie:secret-key-3",
                   "--extra-body", json.dumps({"user": "me", "upstream": {"access_token": "secret-key-4"}}), *small)
    assert result["completed"] == 2
    assert result["tandem"]["config"]["extra-body"] == json.dumps({"user": "me", "upstream": {"access_token": "..."}}, separators=(",", ":"))
    assert "secret-key" not in (tmp_path / "result.json").read_text() + report.read_text()
    result = bench(binary, server, tmp_path, "--header", "authorization: Bearer secret-key-1", *small)
    assert result["completed"] == 2 and "secret-key" not in (tmp_path / "result.json").read_text()


@pytest.mark.parametrize("flags, names", [
    (["--num-promts", "5"], "--num-prompts"),
    (["--stream", "num-promts=5"], "did you mean num-prompts?"),
    (["--stream", "name"], "key=value"),
    (["--request-rate", "-1"], "request-rate"),
    (["--dataset-path", "/no/such/file"], "/no/such/file"),
    (["--goodput", "itl:5"], "goodput"),
    (["--mix", "priority:x"], "--mix"),
    (["--base-url", "ftp://x"], "https"),
    (["--base-url", "http://me:pw@127.0.0.1"], "http://...@127.0.0.1"),
    (["--input-len-dist", "zipf:1"], "zipf"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else value)
def test_wrong_flags_are_named(binary, flags, names):
    done = subprocess.run([str(binary), "bench", "serve", *flags], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode in (1, 2)
    assert names in done.stdout + done.stderr
