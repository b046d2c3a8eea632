"""The hygen policy over HTTP, on one tier and on two: a mixed load is answered as every other policy answers it, recorded, and replayed plan by plan."""
import json
import subprocess

import pytest
from conftest import GOLDENS
from test_omniserve import TIERS, answers, replayed

MODEL = GOLDENS / "llama-gqa-rope3-f32"
SHAPE = ("--max-model-len", "512", "--max-num-batched-tokens", "128", "--max-num-seqs", "16")


@pytest.mark.parametrize("tiers", TIERS)
def test_a_mixed_load_has_its_texts_and_replays_exactly(binary, start_server, tmp_path, tiers):
    flags = (*SHAPE, *TIERS[tiers])
    profile, record = tmp_path / "profile.json", tmp_path / "run.jsonl"
    measured = subprocess.run([str(binary), "profile", str(MODEL), "-o", str(profile), "--time", "1s", "--held-out", "5", *flags],
                              capture_output=True, text=True, timeout=120)
    assert measured.returncode == 0, measured.stdout + measured.stderr
    server = start_server(MODEL, *flags, "--policy", "hygen", "--step-budget", "20ms", "--hold-p99-tbt", "1000000", "--psm-utility", "90", "--flex-blocks", "80",
                          "--step-budget-flex-only", "1" if tiers == "two tiers" else "0", "--profile", profile, "--record-out", record)
    texts = answers(server, 60)
    budgets = [value for name, _, value in server.metrics() if name == "tandem_step_budget_seconds"]
    assert budgets == [0.02]
    server.stop_cleanly()
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert record.read_text().count('"step_budget_flex_only":1') == (tiers == "two tiers")
    assert {line["step_budget_ns"] for line in lines if "plan" in line} == {20_000_000}
    if tiers == "two tiers":
        assert sum(line.get("visits", 0) for line in lines if "result" in line) > 100
    done = replayed(binary, record)
    assert done.returncode == 0 and "identical" in done.stdout, done.stdout + done.stderr
    other = start_server(MODEL, *SHAPE, "--policy", "sarathi_pp", "--served-model-name", MODEL.name)
    assert answers(other, 60) == texts


def test_a_budget_below_a_decode_is_refused_with_the_least(binary, tmp_path):
    done = subprocess.run([str(binary), "serve", str(MODEL), "--port", "0", "--policy", "hygen", "--hygen-step-budget", "1"], capture_output=True,
                          text=True, timeout=120, env={"XDG_CACHE_HOME": str(tmp_path), "PATH": "/usr/bin"})
    assert done.returncode == 2 and "--hygen-step-budget" in done.stdout + done.stderr and "give more" in done.stdout + done.stderr
