"""`tandem simulate`: a load on a simulated machine; the same figures each time; what is wrong with a scenario is said."""
import csv
import json

import pytest
from test_cli import run

TWO_CLASSES = """shape: 8B
accelerator: a100
max-model-len: 4096
policy: {policy}
stream:
  - name=chat;service-tier=priority;request-rate=2;random-input-len=300;random-output-len=60;slo-ttft=1s;slo-tpot=50ms;num-prompts=40
  - name=bulk;service-tier=flex;request-rate=1;random-input-len=1500;random-output-len=100;num-prompts=20
"""


def simulate(binary, tmp_path, *flags):
    code, text = run(binary, "simulate", "-o", tmp_path, *flags)
    assert code == 0, text
    return json.loads((tmp_path / "result.json").read_text()), text


@pytest.mark.core
@pytest.mark.parametrize("policy", ["accel_only", "sarathi", "omniserve"])
def test_a_scenario_of_two_classes_runs_and_repeats(binary, tmp_path, policy):
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(TWO_CLASSES.format(policy=policy))
    result, text = simulate(binary, tmp_path / "one", "--config", scenario)
    assert result["completed"] == 60 and result["failed"] == 0
    assert f"policy {policy}" in text and "1 x a100" in text
    server = result["tandem"]["server"]["config"]
    assert server["policy"] == policy and server["max_model_len"] == 4096
    if policy == "omniserve":
        assert 0.8 < result["tandem"]["machine"]["profile"]["accuracy"]["modular"]["mean"] <= 1
    assert "<svg" in (tmp_path / "one" / "report.html").read_text()
    again, _ = simulate(binary, tmp_path / "two", "--config", scenario)
    for key in ("duration", "mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_itl_ms"):
        assert result[key] == again[key], key
    # 8 billion weights of 2 bytes at 85 % of 2 TB/s.
    assert 9 < result["median_tpot_ms"] < 40


def test_more_accelerators_hold_what_one_does_not(binary, tmp_path):
    load = ["--num-prompts", 3, "--request-rate", 1, "--random-input-len", 100, "--random-output-len", 20, "--max-model-len", 4096, "--policy", "accel_only"]
    code, text = run(binary, "simulate", "--shape", "34B", "--accelerator", "a10", *load)
    assert code == 1 and "does not fit" in text
    result, _ = simulate(binary, tmp_path, "--shape", "34B", "--accelerator", "a10", "--accelerators", 4, *load)
    assert result["completed"] == 3


def test_a_second_tier_takes_best_effort(binary, tmp_path):
    load = ["--num-prompts", 40, "--request-rate", 20, "--random-input-len", 700, "--random-output-len", 60, "--service-tier", "flex", "--max-model-len", 4096]
    result, _ = simulate(binary, tmp_path, "--policy", "piggyback", "--accelerator-memory", "21GiB", "--host-kv", "64GiB", *load)
    assert result["completed"] == 40
    assert result["tandem"]["machine"]["hops"] > 0


def test_offloaded_sequences_have_time_in_steps_that_prompts_fill(binary, tmp_path):
    """An offloaded sequence gets through a layer in nearly every step. A profile that mistook what stages take for what the last one
    takes let visitors wait for steps that seemed to lag."""
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("""shape: 34B
accelerators: 2
host-kv: 380GiB
host-workers: 24
link-gbps: 25
max-model-len: 4096
max-num-seqs: 512
policy: omniserve
admission: "off"
limit: 120s
piggyback-token-budget: 2048  # the target alone bounds steps
stream:
  - name=chat;service-tier=priority;request-rate=1;duration=120s;random-input-len=200;random-output-len=300;slo-tpot=200ms
  - name=bulk;service-tier=flex;request-rate=4;duration=120s;random-input-len=2000;random-output-len=400
""")
    simulate(binary, tmp_path, "--config", scenario)
    with open(tmp_path / "machine.csv", encoding="utf-8") as file:
        slices = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    shares = [one["hops_per_s"] / one["steps"] / one["offloaded"] for one in slices if one["offloaded"] > 20]
    assert len(shares) > 10
    assert sum(shares) / len(shares) > 0.7


def test_a_machine_that_was_measured(binary, tmp_path, long_model):
    ops = tmp_path / "ops.json"
    code, text = run(binary, "profile", long_model, "-o", tmp_path / "profile.json", "--op-times", ops, "--time", "1s", "--held-out", 3, "--threads", 1)
    assert code == 0, text
    names = {op["op"] for op in json.loads(ops.read_text())["ops"]}
    assert {"gemm", "gate_up", "embed", "rms_norm", "sample"} <= names
    load = ["--num-prompts", 20, "--request-rate", 50, "--random-input-len", 30, "--random-output-len", 10, "--policy", "sarathi", "--op-times", ops]
    result, text = simulate(binary, tmp_path, "--shape", long_model, *load)
    assert result["completed"] == 20 and result["median_tpot_ms"] > 0
    code, text = run(binary, "simulate", "--shape", "8B", *load)
    assert code == 2 and "another model" in text
    ops.write_text(ops.read_text().replace("rms_norm", "no_norm"))
    code, text = run(binary, "simulate", "--shape", long_model, *load)
    assert code == 2 and "no_norm" in text and "ops.json" in text


@pytest.mark.parametrize("flags, said", [
    (["--accelerator", "b100"], "a100, h100"),
    (["--shape", "9B"], "8B"),
    (["--accelerator-memory", "lots"], "lots"),
    (["--emulate-accelerator", "auto", "--device-memory", "1GiB", "--host-memory", "1GiB"], "simulate"),
    (["--num-prompts", "0"], "num-prompts"),
    (["--stream", "request-rat=1"], "request-rate"),
    (["--limit", "soon"], "soon"),
    (["--polcy", "sarathi"], "--policy"),
])
def test_what_is_wrong_is_named(binary, flags, said):
    code, text = run(binary, "simulate", *flags)
    assert code != 0
    assert said in text


def test_a_run_that_cannot_end_stops_at_its_limit(binary):
    code, text = run(binary, "simulate", "--max-model-len", 4096, "--policy", "accel_only", "--num-prompts", 3000, "--random-input-len", 2000, "--limit", "10s")
    assert code == 0 and "reached its limit" in text
