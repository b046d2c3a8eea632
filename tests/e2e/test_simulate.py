"""`tandem simulate`: a load on a simulated machine; the same figures each time; what is wrong with a scenario is said."""
import csv
import json
import pathlib
import xml.etree.ElementTree

import pytest
from test_cli import run

SETUPS = sorted((pathlib.Path(__file__).resolve().parent.parent.parent / "experiments" / "setups").glob("*.yaml"))

# More best effort than the accelerator's memory holds, and a host that is slow enough to matter.
TWO_TIERS = """shape: 8B
accelerator: a100
accelerator-memory: 19GiB
max-model-len: 4096
max-num-seqs: 256
limit: 30s
policy: {policy}
stream:
  - name=chat;service-tier=priority;request-rate=2;random-input-len=300;random-output-len=60;slo-ttft=1s;slo-tpot=50ms;duration=20s
  - name=bulk;service-tier=flex;request-rate=6;random-input-len=800;random-output-len=150;duration=20s
"""
ONE_HOST = TWO_TIERS + "host-kv: 64GiB\nhost-gbps: 10\n"
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


@pytest.mark.parametrize("policy", ["accel_only", "sarathi", pytest.param("omniserve", marks=pytest.mark.core)])
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
    result, _ = simulate(binary, tmp_path, "--policy", "piggyback", "--accelerator-memory", "21GiB", "--host-kv", "64GiB", "--offload-below", 25, *load)
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
offload-below: 25
onload-above: 50  # more sequences stay on the host
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


@pytest.mark.parametrize("policy, mode", [("omniserve", "piggyback"), ("overlap", "overlap"), pytest.param("lanes", "lanes", marks=pytest.mark.core)])
def test_a_result_says_what_the_machine_did(binary, tmp_path, policy, mode):
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(ONE_HOST.format(policy=policy))
    result, text = simulate(binary, tmp_path / "one", scenario)
    machine, headline = result["tandem"]["machine"], result["tandem"]["headline"]
    busy = machine["busy"]
    assert 0 < busy["accelerator"] <= 1 and 0 < busy["host"] <= 1
    assert busy["accelerator"] + busy["accelerator_idle_while_host_works"] <= 1.0001
    assert busy["host"] + busy["host_idle_while_accelerator_works"] <= 1.0001
    # The union of both sides, counted from either of them.
    union = busy["accelerator"] + busy["accelerator_idle_while_host_works"]
    assert union == pytest.approx(busy["host"] + busy["host_idle_while_accelerator_works"], abs=1e-6)
    assert 0.9 < sum(machine["limited_by"].values()) <= 1.0001
    assert set(machine["steps_by_mode"]) <= {"resident", "visitors", mode} and machine["steps_by_mode"][mode]["share"] > 0.3
    assert sum(one["share"] for one in machine["steps_by_mode"].values()) == pytest.approx(1)
    assert 0 < machine["offloaded"]["mean"] < machine["offloaded"]["max"]
    assert machine["best_effort"]["prompt_tokens_per_s"] > machine["best_effort"]["output_tokens_per_s"] > 0
    assert headline["best_effort_output_tokens_per_s"] >= headline["bulk.output_tokens_per_s"]
    for line in ("busy  ", "best effort", "offloaded", "limited by", f"{mode} "):
        assert line in text
    report = (tmp_path / "one" / "report.html").read_text()
    for title in ("The machine over time", "Busy sides and limits"):
        assert title in report
    assert ("actual over predicted" in report) == (policy == "omniserve"), "the others predict nothing"
    plots = sorted(path.name for path in (tmp_path / "one" / "plots").iterdir())
    assert {"machine-busy.svg", "machine-decodes.svg", "ttft.svg"} <= set(plots)
    for name in plots:
        assert xml.etree.ElementTree.parse(tmp_path / "one" / "plots" / name).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    simulate(binary, tmp_path / "two", scenario)
    for name in ["summary.csv", "machine.csv"] + [f"plots/{name}" for name in plots]:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def test_a_band_is_the_runs_with_other_host_bandwidth(binary, tmp_path):
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(ONE_HOST.format(policy="lanes"))
    result, text = simulate(binary, tmp_path / "band", scenario, "--host-band", 0.2)
    assert "-20 %" in text and "+20 %" in text
    band = result["tandem"]["host_band"]
    for side, gbps in (("low", 8), ("high", 12)):
        alone, _ = simulate(binary, tmp_path / side, scenario, "--host-gbps", gbps)
        assert alone["tandem"]["headline"] == band[side]
    assert band["low"]["best_effort_output_tokens_per_s"] < band["high"]["best_effort_output_tokens_per_s"]
    with open(tmp_path / "band" / "band.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["host_bandwidth_factor"] for row in rows] == ["0.8", "1", "1.2"]
    assert float(rows[0]["hops"]) == band["low"]["hops"]
    assert "With other host bandwidth" in (tmp_path / "band" / "report.html").read_text()


def test_several_hosts(binary, tmp_path):
    scenario = tmp_path / "scenario.yaml"

    def rate(hosts):
        scenario.write_text(TWO_TIERS.format(policy="lanes") + "host:\n" + hosts)
        result, _ = simulate(binary, tmp_path / "one", scenario)
        again, _ = simulate(binary, tmp_path / "two", scenario)
        assert result["tandem"]["headline"] == again["tandem"]["headline"]
        return result["tandem"]["headline"]["best_effort_output_tokens_per_s"], result["tandem"]["machine"]

    one, machine = rate("  - {kv: 64GiB, gbps: 10, workers: 8}\n")
    assert "hosts" not in machine
    four, machine = rate("  - {kv: 16GiB, gbps: 10, workers: 8, count: 4}\n")
    assert four > 1.2 * one and machine["host_gbps"] == 40 and machine["hosts"]["host 4"]["kv_bytes"] == 16 << 30
    pooled, machine = rate("  - {kv: 16GiB, gbps: 10, workers: 8, count: 4, pooled: true}\n")
    assert pooled > 1.2 * one and "hosts" not in machine
    far, machine = rate("  - {kv: 32GiB, gbps: 20, workers: 16}\n  - {kv: 32GiB, gbps: 20, workers: 16, latency: 5ms, link-gbps: 1}\n")
    assert far < four and machine["hosts"]["host 2"]["latency_us"] == 5000


def test_wrong_beliefs_about_the_host(binary, tmp_path):
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(ONE_HOST.format(policy="omniserve").replace("host-gbps: 10", "host-gbps: 1"))
    hops = {}
    for factor in (0.05, 1, 5):
        result, _ = simulate(binary, tmp_path, scenario, "--belief-host-factor", factor)
        hops[factor] = result["tandem"]["machine"]["offloaded"]["mean"]
    # A policy that believes in a faster host moves more sequences there.
    assert hops[0.05] > hops[1] >= hops[5]


@pytest.mark.parametrize("path", SETUPS, ids=lambda path: path.stem)
def test_the_setups_of_the_papers_run(binary, tmp_path, path):
    text = path.read_text()
    assert "# Expected before the first run" in text
    code, said = run(binary, "simulate", path, "-o", tmp_path, "--limit", "8s")
    assert code == 0, said
    with open(tmp_path / "sweep.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 2
    assert all(float(row["steps"]) > 50 and float(row["completed"]) >= 0 for row in rows)


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
    (["--emulate-accelerator", "auto"], "--emulate-accelerator: it has no effect here: it plays an accelerator in real time"),
    (["--device-memory", "20GiB"], "--device-memory: it has no effect here: the memory of the simulated machine is given by --accelerator-memory"),
    (["--threads", "1"], "--threads: it has no effect here: the simulated machine is given by --accelerator"),
    (["--accelerator-memory", "10GiB"], "Raise --accelerator-memory, which gives 9.00 GiB now"),
    (["--host-kv", "1MiB"], "Raise --host-kv, which gives 1.0 MiB now"),
    (["--engine", "name=gpu;accelerator-memory=10GiB"], "the model does not fit"),
    (["--engine", "name=gpu;isa=avx2"], "--isa: it has no effect here"),
    (["--num-prompts", "0"], "num-prompts"),
    (["--stream", "request-rat=1"], "--stream: unknown key 'request-rat', did you mean request-rate?"),
    (["--limit", "soon"], "soon"),
    (["--polcy", "sarathi"], "--policy"),
    (["--host-band", "0.2"], "give --host-kv or --host"),
    (["--host-band", "20%", "--host-kv", "10GiB"], "20%"),
    (["--host", "gbps=5"], "its memory is missing"),
    (["--host", "kv=5GiB;gbsp=5"], "unknown key 'gbsp', did you mean gbps?"),
    (["--host", "kv=5GiB", "--host-kv", "5GiB"], "leave --host-kv out"),
    (["--host", "kv=5GiB;link-gbps=0"], "link-gbps"),
    (["--belief-host-factor", "0"], "belief-host-factor"),
    (["--log-level", "loud"], "unknown log level 'loud' (known: trace, debug"),
])
def test_what_is_wrong_is_named(binary, flags, said):
    code, text = run(binary, "simulate", *flags)
    assert code != 0
    assert said in text


def test_help_lists_no_option_without_effect(binary):
    text = run(binary, "simulate", "--help")[1]
    absent = ["--device-memory", "--gpu-memory-utilization", "--threads", "--isa", "--numa", "--device ", "--host-memory", "--timeline-out", "--seed"]
    assert [flag for flag in absent if f"  {flag}" in text] == []
    assert "  --accelerator-memory" in text and "  --max-queue-flex" in text and "  --profile" in text


def test_a_run_that_cannot_end_stops_at_its_limit(binary):
    code, text = run(binary, "simulate", "--max-model-len", 4096, "--policy", "accel_only", "--num-prompts", 3000, "--random-input-len", 2000, "--limit", "10s")
    assert code == 0 and "reached its limit" in text


def test_the_log_level_is_chosen(binary):
    flags = ("simulate", "--max-model-len", 4096, "--policy", "accel_only", "--num-prompts", 3000, "--random-input-len", 2000, "--limit", "1s")
    assert "reached its limit" in run(binary, *flags)[1]
    code, text = run(binary, *flags, "--log-level", "off")
    assert code == 0 and "reached its limit" not in text


def test_the_queue_is_bounded_by_class(binary, tmp_path):
    result, _ = simulate(binary, tmp_path, "--max-model-len", 4096, "--max-num-seqs", 2, "--max-queue-flex", 5, "--stream",
                         "service-tier=flex;num-prompts=40;random-input-len=100;random-output-len=10", "--stream",
                         "service-tier=priority;num-prompts=20;random-input-len=100;random-output-len=10")
    assert result["completed"] + result["failed"] == 60 and 30 <= result["failed"] <= 35
    assert result["tandem"]["server"]["config"]["max_queue_flex"] == 5
