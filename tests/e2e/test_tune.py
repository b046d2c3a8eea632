"""`tandem tune`: the step budget of hygen that keeps latency-sensitive requests within a tolerance, on the simulated machine."""
import json

import pytest
from test_cli import run

SCENARIO = """shape: 8B
accelerator: a100
max-model-len: 4096
piggyback-token-budget: 2048
stream:
  - {name: chat, service-tier: priority, request-rate: 4, random-input-len: 300, random-output-len: 60, duration: 12s}
  - {name: bulk, service-tier: flex, request-rate: 4, random-input-len: 1500, random-output-len: 100, duration: 12s}
"""


def tuned(binary, tmp_path, *flags, text=SCENARIO):
    path = tmp_path / "load.yaml"
    path.write_text(text)
    return run(binary, "tune", path, *flags)


def test_the_budget_keeps_the_tolerance_and_serves_the_most_best_effort(binary, tmp_path):
    out = tmp_path / "budget.json"
    code, text = tuned(binary, tmp_path, "--metric", "p99_tbt", "--tolerance", "20", "-o", out)
    assert code == 0, text
    found = json.loads(out.read_text())
    budget = found["step_budget_us"]
    assert f"--step-budget {out}" in text and f"the best of {len(found['tried'])} that were tried" in text
    assert found["config"]["policy"] == "hygen" and found["config"]["hygen_step_budget"] == budget and found["config"]["kv_blocks"] > 0
    assert found["flags"]["piggyback-token-budget"] == "2048" and found["flags"]["accelerator"] == "a100"
    allowed = found["without_best_effort"]["p99_tbt_ms"] * 1.2
    assert found["with_budget"]["p99_tbt_ms"] <= allowed
    assert found["best_effort_tokens_per_s"] == found["with_budget"]["best_effort_tokens_per_s"] > 0
    assert all(one["kept"] == (one["p99_tbt_ms"] <= allowed) for one in found["tried"])
    kept = [one for one in found["tried"] if one["kept"]]
    most = max(one["best_effort_tokens_per_s"] for one in kept)
    assert found["best_effort_tokens_per_s"] >= 0.98 * most  # 1 % for the smaller budget, 1 % for the usual of the two ways
    # The largest that keeps it was found to 1 %, with a budget for all and with one for best effort only.
    for way in (False, True):
        of_way = [one for one in found["tried"] if one.get("flex_only", False) == way]
        edge = max(one["step_budget_us"] for one in of_way if one["kept"])
        above = [one["step_budget_us"] for one in of_way if one["step_budget_us"] > edge]
        assert min(above) <= edge * 1.011
    # The same figures whenever it runs, and the run by itself is the same.
    again = tmp_path / "again.json"
    assert tuned(binary, tmp_path, "--tolerance", "20", "--jobs", "1", "-o", again)[0] == 0
    assert json.loads(again.read_text()) == found
    code, text = run(binary, "simulate", tmp_path / "load.yaml", "--policy", "hygen", "--step-budget", out, "--fixed-step-budget", "-o",
                     tmp_path / "run")
    assert code == 0, text
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    chat = next(one for one in result["tandem"]["classes"] if one["name"] == "chat")
    assert chat["itl_ms"]["percentiles"]["99"] == pytest.approx(found["with_budget"]["p99_tbt_ms"])


def test_a_run_by_itself_believes_the_same_wrong_times(binary, tmp_path):
    """The search measures the machine once; each run by itself measures it with the same errors."""
    text = "belief-noise: 0.2\nbelief-factor: 1.1\nstep-budget-flex-only: 0\n" + SCENARIO
    out = tmp_path / "budget.json"
    code, said = tuned(binary, tmp_path, "--tolerance", "20", "-o", out, text=text)
    assert code == 0, said
    found = json.loads(out.read_text())
    code, said = run(binary, "simulate", tmp_path / "load.yaml", "--policy", "hygen", "--step-budget", out, "--fixed-step-budget", "-o", tmp_path / "run")
    assert code == 0, said
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    chat = next(one for one in result["tandem"]["classes"] if one["name"] == "chat")
    assert chat["itl_ms"]["percentiles"]["99"] == pytest.approx(found["with_budget"]["p99_tbt_ms"])


def test_each_point_of_a_sweep_is_a_load_and_all_keep_the_tolerance(binary, tmp_path):
    out = tmp_path / "budget.json"
    code, text = tuned(binary, tmp_path, "--tolerance", "20", "-o", out, text="vary: {load-seed: [1, 2]}\nstep-budget-flex-only: 0\n" + SCENARIO)
    assert code == 0 and "nearest of 2 loads: " in text, text
    found = json.loads(out.read_text())
    alone, beside = found["without_best_effort"]["loads"], found["with_budget"]["loads"]
    assert [one["load"] for one in beside] == ["1-load-seed=1", "2-load-seed=2"]
    assert len({one["p99_tbt_ms"] for one in alone}) == 2
    assert all(one["p99_tbt_ms"] <= other["p99_tbt_ms"] * 1.2 for one, other in zip(beside, alone))
    assert found["hold_us"]["p99_tbt"] == pytest.approx(min(one["p99_tbt_ms"] for one in alone) * 1200, abs=1)
    assert found["best_effort_tokens_per_s"] == pytest.approx(sum(one["best_effort_tokens_per_s"] for one in beside) / 2)
    code, text = run(binary, "simulate", tmp_path / "load.yaml", "--policy", "hygen", "--step-budget", out, "-o", tmp_path / "run")
    assert code == 0, text


def test_requests_that_the_limit_cuts_off_are_counted_and_told(binary, tmp_path):
    out = tmp_path / "budget.json"
    code, text = tuned(binary, tmp_path, "--tolerance", "200", "-o", out, text="limit: 9s\n" + SCENARIO)
    found = json.loads(out.read_text())
    lost = found["without_best_effort"]["latency_sensitive_lost"]
    assert code == 0 and lost > 0
    assert f"{lost} latency-sensitive requests are refused or have not ended at the run's limit" in text
    assert all(one["latency_sensitive_lost"] <= lost for one in found["tried"] if one["kept"])


def test_the_rate_of_the_baseline_is_found_in_the_same_way(binary, tmp_path):
    out = tmp_path / "rate.json"
    code, text = tuned(binary, tmp_path, "--policy", "hygen_star", "--metric", "mean_tbt", "--tolerance", "50", "-o", out)
    assert code == 0, text
    found = json.loads(out.read_text())
    assert f"--policy hygen_star --flex-rate {found['flex_rate']}" in text
    assert found["with_budget"]["mean_tbt_ms"] <= found["without_best_effort"]["mean_tbt_ms"] * 1.5
    code, text = run(binary, "simulate", tmp_path / "load.yaml", "--policy", "hygen", "--step-budget", out)
    assert code == 2 and "'step_budget_us' must be" in text, text


def test_several_metrics_are_all_kept(binary, tmp_path):
    out = tmp_path / "budget.json"
    code, text = tuned(binary, tmp_path, "--metric", "p99_tbt", "mean_ttft", "--tolerance", "60", "-o", out)
    assert code == 0, text
    found = json.loads(out.read_text())
    for metric in ("p99_tbt_ms", "mean_ttft_ms"):
        assert found["with_budget"][metric] <= found["without_best_effort"][metric] * 1.6


def test_each_metric_may_have_its_tolerance_and_the_budget_may_bound_best_effort_only(binary, tmp_path):
    out, text = tmp_path / "budget.json", "step-budget-flex-only: 1\n" + SCENARIO
    code, said = tuned(binary, tmp_path, "--metric", "p99_tbt", "mean_ttft", "--tolerance", "60", "40", "-o", out, text=text)
    assert code == 0, said
    found = json.loads(out.read_text())
    assert found["flex_only"] is True and found["tolerances"] == [0.6, 0.4] and found["config"]["step_budget_flex_only"] == 1
    for metric, allowed in (("p99_tbt_ms", 1.6), ("mean_ttft_ms", 1.4)):
        assert found["with_budget"][metric] <= found["without_best_effort"][metric] * allowed
    # The file sets the option for a run by it.
    (tmp_path / "load.yaml").write_text(SCENARIO)
    code, said = run(binary, "simulate", tmp_path / "load.yaml", "--policy", "hygen", "--step-budget", out, "--fixed-step-budget", "-o", tmp_path / "run")
    assert code == 0, said
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    chat = next(one for one in result["tandem"]["classes"] if one["name"] == "chat")
    assert chat["itl_ms"]["percentiles"]["99"] == pytest.approx(found["with_budget"]["p99_tbt_ms"])
    # It does not for the next search, where the scenario says 0.
    code, said = tuned(binary, tmp_path, "--tolerance", "60", "-o", tmp_path / "next.json", text=f"step-budget: {out}\nstep-budget-flex-only: 0\n" + SCENARIO)
    assert code == 0 and '"flex_only"' not in (tmp_path / "next.json").read_text(), said
    code, said = tuned(binary, tmp_path, "--metric", "p99_tbt", "--tolerance", "60", "40")
    assert code == 2 and "one for each" in said, said


def test_goals_are_held_under_a_model_of_time_that_is_wrong(binary, tmp_path):
    out = tmp_path / "budget.json"
    code, text = tuned(binary, tmp_path, "--tolerance", "20", "-o", out, text="step-budget-flex-only: 0\n" + SCENARIO)
    assert code == 0, text
    allowed = 31.5  # at the budget, so that a wrong model misses it
    out.write_text(json.dumps(json.loads(out.read_text()) | {"step_budget_us": 31000, "hold_us": {"p99_tbt": 31500}}))
    (tmp_path / "long.yaml").write_text(SCENARIO.replace("12s", "900s"))

    def simulated(*flags):
        code, text = run(binary, "simulate", tmp_path / "long.yaml", "--policy", "hygen", "--step-budget", out, *flags, "-o", tmp_path / "run")
        assert code == 0, text
        result = json.loads((tmp_path / "run" / "result.json").read_text())
        return text, next(one for one in result["tandem"]["classes"] if one["name"] == "chat")["itl_ms"]["percentiles"]["95"]

    wrong = ("--time-model-error=-50%",)
    text, fixed = simulated(*wrong, "--fixed-step-budget")
    assert fixed > 1.3 * allowed and "time model -50%" in text
    _, held = simulated(*wrong)
    assert held < 0.8 * fixed  # the first minutes, until the budget has come down, are in it too


def test_a_budget_is_for_the_model_that_it_was_found_for(binary, tmp_path):
    out = tmp_path / "budget.json"
    assert tuned(binary, tmp_path, "--tolerance", "50", "-o", out)[0] == 0
    for flags, named in [(("--policy", "hygen", "--shape", "3B"), "found for another model, '8B'"), (("--policy", "sarathi"), "--policy hygen")]:
        code, text = run(binary, "simulate", tmp_path / "load.yaml", "--step-budget", out, *flags)
        assert code == 2 and named in text, text
    code, text = run(binary, "simulate", tmp_path / "load.yaml", "--policy", "hygen", "--step-budget", out, "--step-budget-flex-only", "1")
    assert code == 2 and "found without --step-budget-flex-only" in text, text
    for budget, named in [("20", "cannot be read"), ("40min", "out of range"), (tmp_path / "load.yaml", "not what `tandem tune")]:
        code, text = run(binary, "simulate", tmp_path / "load.yaml", "--policy", "hygen", "--step-budget", budget)
        assert code == 2 and named in text, text


@pytest.mark.parametrize("flags, change, named", [
    (["--metric", "p99"], None, "mean_tbt, p99_tbt"),
    (["--metric", "p99_tbt", "p99_tbt", "--tolerance", "40", "90"], None, "names p99_tbt twice"),
    (["--tolerance", "0"], None, "--tolerance"),
    ([], ("service-tier: flex", "service-tier: priority"), "no stream is best effort"),
    ([], ("shape: 8B", "shape: 8B\nvary: {policy: [hygen, sarathi]}"), "load.yaml:2: tune does not vary 'policy'"),
    ([], ("shape: 8B", "vary: {shape: [8B, 3B]}"), "load.yaml:1: in the point 2-shape=3B: another model"),
    ([], ("shape: 8B", "shape: 8B\nvary: {hold-p99-tbt: [0, 20000]}"), "load.yaml:2: tune does not vary 'hold-p99-tbt'"),
    ([], ("shape: 8B", "shape: 8B\nvary: {limit: [20s, 1ms]}"), "in the point 2-limit=1ms: p99_tbt cannot be measured"),
    (["--jobs", "0"], None, "--jobs"),
    ([], ("random-output-len: 60", "random-output-len: 1"), "with two tokens"),
    (["--metric", "mean_ttft", "--tolerance", "0.1"], None, "keeps the tolerance"),
], ids=["metric", "twice", "tolerance", "no-flex", "vary", "models", "hold", "nothing-ends", "jobs", "no-samples", "out-of-reach"])
def test_what_cannot_be_tuned_is_refused_with_the_cause(binary, tmp_path, flags, change, named):
    code, text = tuned(binary, tmp_path, *flags, text=SCENARIO.replace(*change) if change else SCENARIO)
    assert code == 2 and named in text, text


def test_a_file_that_is_missing_is_named(binary, tmp_path):
    code, text = run(binary, "tune", tmp_path / "none.yaml")
    assert code != 0 and "none.yaml" in text
