"""`tandem simulate` with several engines: results of each and of all, a shared host, and errors in a list of engines."""
import csv
import json

import pytest
from test_cli import run

SCENARIO = """shape: 8B
max-model-len: 4096
limit: 300s
engine:
  - {name: gpu, accelerator: a100, accelerator-memory: 19GiB, host-kv: 64GiB, host-gbps: 20, policy: omniserve}
  - {name: cpu, accelerator: xeon-6342, policy: sarathi, shares-host: gpu}
stream:
  - {name: chat, engine: gpu, service-tier: priority, request-rate: 2, random-input-len: 300, random-output-len: 60, num-prompts: 20}
  - {name: spill, engine: gpu, service-tier: flex, request-rate: 6, random-input-len: 800, random-output-len: 150, num-prompts: 60}
  - {name: bulk, engine: cpu, service-tier: flex, request-rate: 0.5, random-input-len: 100, random-output-len: 20, num-prompts: 5}
"""


def simulate(binary, tmp_path, text, *flags):
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "scenario.yaml").write_text(text)
    code, out = run(binary, "simulate", tmp_path / "scenario.yaml", "-o", tmp_path / "out", *flags)
    assert code == 0, out
    return json.loads((tmp_path / "out" / "result.json").read_text()), out


def test_results_show_each_engine_and_the_sum(binary, tmp_path):
    result, text = simulate(binary, tmp_path / "first", SCENARIO)
    assert result["completed"] == 85
    engines = {engine["name"]: engine for engine in result["tandem"]["engines"]}
    assert [engines[name]["completed"] for name in ("gpu", "cpu")] == [80, 5]
    assert sum(engine["output_tokens"] for engine in engines.values()) == result["total_output_tokens"]
    assert "models" not in result["tandem"]
    assert engines["gpu"]["machine"]["hops"] > 0 and engines["cpu"]["machine"]["hops"] == 0
    machine, headline = result["tandem"]["machine"], result["tandem"]["headline"]
    assert machine["steps"] == sum(engine["machine"]["steps"] for engine in engines.values()) == headline["steps"]
    assert set(machine["engines"]) == {"gpu", "cpu"} and machine["engines"]["cpu"]["shares_host"] == "gpu"
    assert headline["output_tokens_per_s"] == pytest.approx(headline["engine gpu.output_tokens_per_s"] + headline["engine cpu.output_tokens_per_s"])
    assert 0 < headline["engine cpu.compute_busy"] <= 1
    assert result["tandem"]["server"]["config"]["gpu"]["policy"] == "omniserve"
    for line in ("2 engines: ", "By engine", " Engine gpu ", " Engine cpu ", "8B on 1 x xeon-6342, policy sarathi"):
        assert line in text
    out = tmp_path / "first" / "out"
    with open(out / "summary.csv", encoding="utf-8", newline="") as file:
        assert float(list(csv.DictReader(file))[0]["engine cpu.completed"]) == 5
    report = (out / "report.html").read_text()
    for title in ("<h2>Engines</h2>", "<h2>Engine gpu</h2>", "<h2>Engine cpu</h2>"):
        assert title in report
    plots = {path.name for path in (out / "plots").iterdir()}
    assert {"gpu-machine-busy.svg", "cpu-machine-busy.svg", "ttft.svg"} <= plots
    names = [f"plots/{name}" for name in plots] + ["summary.csv", "machine-gpu.csv", "machine-cpu.csv"]
    simulate(binary, tmp_path / "again", SCENARIO)
    for name in names:
        assert (out / name).read_bytes() == (tmp_path / "again" / "out" / name).read_bytes(), name
    # The order of the list changes the order of columns alone.
    lines = SCENARIO.splitlines(keepends=True)
    swapped, _ = simulate(binary, tmp_path / "swapped", "".join(lines[:4] + [lines[5], lines[4]] + lines[6:]))
    assert swapped["tandem"]["headline"] == headline
    assert (out / "machine-gpu.csv").read_bytes() == (tmp_path / "swapped" / "out" / "machine-gpu.csv").read_bytes()


def test_a_list_of_one_engine_is_that_engine(binary, tmp_path):
    lines = SCENARIO.splitlines(keepends=True)
    streams = "".join(lines[6:9]).replace("engine: gpu, ", "")
    listed, _ = simulate(binary, tmp_path / "listed", "".join(lines[:5]) + streams)
    own = lines[4].strip().removeprefix("- {name: gpu, ").removesuffix("}")
    plain, _ = simulate(binary, tmp_path / "plain", "".join(lines[:3]) + "".join(f"{key}\n" for key in own.split(", ")) + streams)
    of_engine = {name.removeprefix("engine gpu."): value for name, value in listed["tandem"]["headline"].items() if name.startswith("engine gpu.")}
    assert plain["tandem"]["headline"]["hops"] > 0
    for name, value in plain["tandem"]["headline"].items():
        assert (listed["tandem"]["headline"] if "." in name else of_engine).get(name, value) == value, name
    assert (tmp_path / "listed" / "out" / "machine-gpu.csv").read_bytes() == (tmp_path / "plain" / "out" / "machine.csv").read_bytes()


def test_a_shared_host_slows_both_down(binary, tmp_path):
    # The host attends all the time, and products on it wait for its memory.
    slow = SCENARIO.replace("host-gbps: 20, policy: omniserve", "host-gbps: 5, policy: overlap")
    shared, _ = simulate(binary, tmp_path / "shared", slow)
    apart, _ = simulate(binary, tmp_path / "apart", slow.replace(", shares-host: gpu", ""))
    for name in ("spill", "bulk"):
        tpot = [next(one for one in result["tandem"]["classes"] if one["name"] == name)["tpot_ms"]["mean"] for result in (shared, apart)]
        assert tpot[0] > tpot[1], name


def test_streams_without_an_engine_are_dispatched(binary, tmp_path):
    text = SCENARIO.replace("engine: gpu, ", "").replace("engine: cpu, ", "").replace("name: gpu,", "name: gpu, serves: priority,")
    result, _ = simulate(binary, tmp_path, text)
    assert [engine["planned"] for engine in result["tandem"]["engines"]] == [20, 65]


def test_a_sweep_varies_a_key_of_an_engine(binary, tmp_path):
    text = SCENARIO + "vary: {engine.cpu.accelerator-gbps: [100, 200]}\n"
    (tmp_path / "scenario.yaml").write_text(text)
    code, out = run(binary, "simulate", tmp_path / "scenario.yaml", "-o", tmp_path / "out")
    assert code == 0, out
    with open(tmp_path / "out" / "sweep.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[0]["engine cpu.tpot_p50_ms"]) > float(rows[1]["engine cpu.tpot_p50_ms"])


def test_a_band_holds_for_every_host(binary, tmp_path):
    result, _ = simulate(binary, tmp_path, SCENARIO, "--host-band", "0.2")
    low, high = (result["tandem"]["host_band"][side] for side in ("low", "high"))
    assert low["engine cpu.tpot_p50_ms"] > high["engine cpu.tpot_p50_ms"]
    assert (tmp_path / "out" / "band.csv").exists()


@pytest.mark.core
@pytest.mark.parametrize("change, line, said", [
    (("engine: cpu,", "engine: cpus,"), 10, "no engine is named 'cpus', did you mean cpu?; there are gpu, cpu"),
    (("name: cpu,", "name: gpu,"), 6, "engines 1 and 2 are both named 'gpu'"),
    (("name: cpu,", "name: a/b,"), 6, "letters, digits, - or _"),
    (("name: cpu, ", ""), 6, "engine 2: it has no name"),
    (("shares-host: gpu", "shares-host: gpuu"), 6, "no engine is named 'gpuu', did you mean gpu?"),
    (("host-kv: 64GiB, ", ""), 6, "'gpu' uses no host; give it host-kv"),
    (("policy: sarathi", "polcy: sarathi"), 6, "engine 2: unknown key 'polcy', did you mean policy?"),
    (("xeon-6342", "xeon"), 6, "engine 'cpu': --accelerator 'xeon' is none of a100"),
    (("accelerator-memory: 19GiB", "accelerator-memory: 8GiB"), 5, "engine 'gpu': "),
    (("xeon-6342,", "xeon-6342, host-kv: 1GiB,"), 6, "is a host itself and has no second tier"),
    (("name: gpu,", "name: gpu, serves: flexi,"), 5, "flex"),
])
def test_what_is_wrong_with_engines_is_said(binary, tmp_path, change, line, said):
    assert change[0] in SCENARIO
    (tmp_path / "scenario.yaml").write_text(SCENARIO.replace(*change))
    code, text = run(binary, "simulate", tmp_path / "scenario.yaml")
    assert code in (1, 2), text
    assert f"scenario.yaml:{line}: " in text and said in text, text


def test_streams_that_go_nowhere_are_said(binary, tmp_path):
    text = SCENARIO.replace("engine: gpu, ", "").replace("name: gpu,", "name: gpu, serves: flex,").replace("name: cpu,", "name: cpu, serves: flex,")
    (tmp_path / "scenario.yaml").write_text(text)
    code, said = run(binary, "simulate", tmp_path / "scenario.yaml")
    assert code == 2 and "scenario.yaml:8: stream 'chat' goes to no engine: none serves priority requests" in said
    code, said = run(binary, "simulate", "--stream", "name=chat;engine=gpu;num-prompts=1")
    assert code == 2 and "the scenario lists no engines" in said
    code, said = run(binary, "tune", tmp_path / "scenario.yaml")
    assert code == 2, said
