"""The omniserve policy over HTTP, on one tier and on two: a mixed load with targets is answered, recorded, and replayed plan by plan. What it
planned rests on a model of time that learnt from every step, so a replay must believe the same at every step."""
import concurrent.futures
import json
import subprocess

import pytest
from conftest import GOLDENS

MODEL = GOLDENS / "llama-gqa-rope3-f32"
SHAPE = ("--max-model-len", "512", "--max-num-batched-tokens", "128", "--max-num-seqs", "16", "--policy", "omniserve")
TIERS = {
    "one tier": ("--device-memory", "512MiB"),
    "two tiers": ("--emulate-accelerator", "auto", "--device-memory", "64MiB", "--host-memory", "64MiB", "--num-kv-blocks", "8",
                  "--offload-below", "100", "--onload-above", "100"),
}


def body(server, i):
    latency_sensitive = i % 3 == 0
    extra = {"service_tier": "priority", "slo": {"ttft_ms": 500, "tpot_ms": 20}} if latency_sensitive else {"service_tier": "flex"}
    return {"model": server.model_name(), "prompt": f"request {i}: " + "the fox and the hen " * (2 + i % 6), "max_tokens": 10 + i % 20,
            "temperature": 0, "extra_body": {"ignore_eos": True, **extra}}


def answers(server, count):
    client = server.openai()
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        return [done.choices[0].text for done in pool.map(lambda i: client.completions.create(**body(server, i)), range(count))]


def replayed(binary, record):
    return subprocess.run([str(binary), "replay", str(record), "--model", str(MODEL)], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("tiers", TIERS)
def test_a_mixed_load_replays_exactly(binary, start_server, tmp_path, tiers):
    flags = (*SHAPE, *TIERS[tiers])
    profile, record = tmp_path / "profile.json", tmp_path / "run.jsonl"
    measured = subprocess.run([str(binary), "profile", str(MODEL), "-o", str(profile), "--time", "1s", "--held-out", "5", *flags],
                              capture_output=True, text=True, timeout=120)
    assert measured.returncode == 0, measured.stdout + measured.stderr
    server = start_server(MODEL, *flags, "--profile", profile, "--record-out", record)
    texts = answers(server, 60)
    assert texts == answers(server, 60)
    server.stop_cleanly()
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    results = [line for line in lines if "result" in line]
    assert sum("predicted_ns" in line for line in results) > 50
    if tiers == "two tiers":
        assert sum(line.get("visits", 0) for line in results) > 100
        assert any(line.get("ready", 0) > 0 for line in lines)
    done = replayed(binary, record)
    assert done.returncode == 0 and "identical" in done.stdout, done.stdout + done.stderr
    # What a step took is what was learnt from it: another time, and the next steps are believed to take another.
    changed = False
    for line in lines:
        if "result" in line and "predicted_ns" in line and not changed:
            line["ns"], changed = line["ns"] * 3, True
    (tmp_path / "forged.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert replayed(binary, tmp_path / "forged.jsonl").returncode == 1
