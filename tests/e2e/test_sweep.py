"""`tandem simulate` with a scenario file: outputs of a run, sweeps of one or two keys, what is wrong with a file, Ctrl-C."""
import csv
import json
import os
import pathlib
import pty
import signal
import subprocess
import time

import pytest
from test_cli import run

EXAMPLES = sorted((pathlib.Path(__file__).resolve().parent.parent.parent / "examples").glob("*.yaml"))

BASE = """shape: 8B
accelerator: a100
max-model-len: 4096
policy: sarathi
stream:
  - {name: chat, service-tier: priority, request-rate: 2, random-input-len: 300, random-output-len: 40, slo-ttft: 1s, num-prompts: 20}
  - name=bulk;service-tier=flex;request-rate=1;random-input-len=900;random-output-len=60;num-prompts=10
"""
TWO_KEYS = BASE + """vary:
  policy: [accel_only, sarathi]
  stream.chat.request-rate: [1, 4]
"""


def scenario_file(tmp_path, text):
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    return path


def rows_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def one_point(policy, rate):
    return BASE.replace("policy: sarathi", f"policy: {policy}").replace("request-rate: 2,", f"request-rate: {rate},")


def test_a_run_writes_its_configuration_and_its_numbers(binary, tmp_path):
    path = scenario_file(tmp_path, BASE)
    code, text = run(binary, "simulate", path, "-o", tmp_path / "out", "--max-num-seqs", 32)
    assert code == 0, text
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    config = result["tandem"]["config"]
    assert config["policy"] == "sarathi" and config["max-num-seqs"] == "32" and "random-input-len=300" in config["stream"]
    assert result["tandem"]["server"]["config"]["max_num_seqs"] == 32
    (row,) = rows_of(tmp_path / "out" / "summary.csv")
    assert float(row["completed"]) == 30 and float(row["ttft_p99_ms"]) == result["p99_ttft_ms"]
    assert float(row["chat.completed"]) == 20 and row["bulk.attainment"] == ""
    assert float(row["steps"]) == result["tandem"]["machine"]["steps"] and row["step_time_error"] == ""  # sarathi predicts nothing
    assert (tmp_path / "out" / "machine.csv").exists()
    report = (tmp_path / "out" / "report.html").read_text()
    assert "Simulated machine" in report and "generator" not in report
    # The file by --config is the same file, and flags win over it.
    code, text = run(binary, "simulate", "--config", path, "-o", tmp_path / "flag", "--policy", "omniserve")
    assert code == 0 and "policy omniserve" in text
    (row,) = rows_of(tmp_path / "flag" / "summary.csv")
    assert 0 <= float(row["step_time_error"]) < 1
    # The command in the report repeats the run.
    command = result["tandem"]["command"]
    done = subprocess.run(f"{binary} {command.removeprefix('tandem ')} -o {tmp_path / 'again'}", shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again" / "summary.csv").read_bytes() == (tmp_path / "out" / "summary.csv").read_bytes()


def test_a_sweep_is_its_single_runs_whatever_the_jobs(binary, tmp_path):
    path = scenario_file(tmp_path, TWO_KEYS)
    for jobs in (1, 4):
        code, text = run(binary, "simulate", path, "-o", tmp_path / f"jobs{jobs}", "--jobs", jobs)
        assert code == 0, text
        assert "4 of 4 points" in text and "accel_only" in text and "TTFT P99" in text
    for name in ("sweep.csv", "sweep.json", "sweep.html"):
        assert (tmp_path / "jobs1" / name).read_bytes() == (tmp_path / "jobs4" / name).read_bytes(), name
    rows = rows_of(tmp_path / "jobs4" / "sweep.csv")
    points = json.loads((tmp_path / "jobs4" / "sweep.json").read_text())["points"]
    keys = [(row["policy"], row["stream.chat.request-rate"]) for row in rows]
    assert keys == [("accel_only", "1"), ("accel_only", "4"), ("sarathi", "1"), ("sarathi", "4")]
    for (policy, rate), row, point in zip(keys, rows, points):
        out = tmp_path / f"{policy}-{rate}"
        (tmp_path / "one.yaml").write_text(one_point(policy, rate))
        code, text = run(binary, "simulate", tmp_path / "one.yaml", "-o", out)
        assert code == 0, text
        (single,) = rows_of(out / "summary.csv")
        assert {key: row[key] for key in single} == single
        folder = tmp_path / "jobs4" / point["folder"]
        assert (folder / "summary.csv").read_bytes() == (out / "summary.csv").read_bytes()
        assert "vary" not in (folder / "scenario.yaml").read_text() and (folder / "log").read_text()
        # A point's scenario runs alone.
        code, text = run(binary, "simulate", folder / "scenario.yaml", "-o", tmp_path / "alone")
        assert code == 0 and (tmp_path / "alone" / "summary.csv").read_bytes() == (out / "summary.csv").read_bytes(), text
    page = (tmp_path / "jobs4" / "sweep.html").read_text()
    assert page.count("<svg") > 10 and "Class chat" in page and points[0]["folder"] + "/report.html" in page


def test_plots_are_files_and_show_the_band(binary, tmp_path):
    text = BASE.replace("policy: sarathi", "policy: lanes").replace("max-model-len", "accelerator-memory: 18GiB\nhost-kv: 64GiB\nhost-gbps: 2\nhost-band: 0.2\nmax-model-len")
    path = scenario_file(tmp_path, text.replace("request-rate=1;", "request-rate=20;").replace("num-prompts=10", "num-prompts=60") + "vary: {max-num-seqs: [32, 64]}\n")
    for out in ("one", "two"):
        code, said = run(binary, "simulate", path, "-o", tmp_path / out)
        assert code == 0, said
    names = sorted(str(file.relative_to(tmp_path / "one")) for file in (tmp_path / "one").rglob("*.svg"))
    assert "plots/bulk.output_tokens_per_s.svg" in names and "points/1-max-num-seqs=32/plots/machine-busy.svg" in names
    for name in names + ["sweep-band.csv", "sweep.html"]:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    assert any('class="band c' in (tmp_path / "one" / name).read_text() for name in names)
    assert "from 0.8 to 1.2 times" in (tmp_path / "one" / "sweep.html").read_text()
    factors = [(row["max-num-seqs"], row["host_bandwidth_factor"]) for row in rows_of(tmp_path / "one" / "sweep-band.csv")]
    assert factors == [(seqs, factor) for seqs in ("32", "64") for factor in ("0.8", "1", "1.2")]


def test_the_file_may_name_its_folder_and_jobs(binary, tmp_path):
    path = scenario_file(tmp_path, BASE + f"out: {tmp_path}/out\njobs: 2\nvary: {{policy: [accel_only, sarathi]}}\n")
    code, text = run(binary, "simulate", path)
    assert code == 0, text
    assert str(tmp_path) not in (tmp_path / "out" / "points" / "1-policy=accel_only" / "scenario.yaml").read_text()
    path = scenario_file(tmp_path, BASE + f"out: {tmp_path}/alone\n")
    code, text = run(binary, "simulate", path)
    assert code == 0 and (tmp_path / "alone" / "summary.csv").exists(), text
    code, text = run(binary, "simulate", scenario_file(tmp_path, BASE + "jobs: many\n"))
    assert code == 2 and "scenario.yaml: " in text and "many" in text


def test_flags_hold_for_every_point(binary, tmp_path):
    path = scenario_file(tmp_path, BASE + "vary: {policy: [accel_only, sarathi]}\n")
    code, text = run(binary, "simulate", path, "--max-num-seqs", 3, "-o", tmp_path / "out")
    assert code == 0, text
    for point in (tmp_path / "out" / "points").iterdir():
        assert json.loads((point / "result.json").read_text())["tandem"]["server"]["config"]["max_num_seqs"] == 3
    assert '<rect class="bar' in (tmp_path / "out" / "sweep.html").read_text()


@pytest.mark.parametrize("vary, said", [
    ("vary:\n", "scenario.yaml:8: vary: it names nothing to vary; give one or two keys"),
    ("vary: [policy]\n", "scenario.yaml:8: vary: it is not a map"),
    ("vary: {policy: [sarathi], admission: ['on'], max-num-seqs: [8]}\n", "3 keys are more than two"),
    ("vary:\n  polcy: [sarathi]\n", "scenario.yaml:9: vary: unknown key 'polcy', did you mean policy?"),
    ("vary:\n  policy: []\n", "scenario.yaml:9: vary: the list of 'policy' is empty"),
    ("vary: {policy: sarathi}\n", "write policy: [A, B]"),
    ("vary:\n  max-num-seqs:\n    - 8\n    - many\n", "scenario.yaml:11: in the point 2-max-num-seqs=many: --max-num-seqs: 'many'"),
    ("vary: {policy: [sarathi, saratih]}\n", "saratih"),
    ("vary: {max-num-seqs: [8, 8]}\n", "has the value 8 twice"),
    ("vary: {stream.chat.request-rat: [1]}\n", "did you mean request-rate?"),
    ("vary: {stream.chta.request-rate: [1]}\n", "there are chat, bulk"),
    ("vary:\n  stream.chat.request-rate: [1, 0]\n", "scenario.yaml:9: in the point 2-chat.request-rate=0: "),
    ("vary:\n  shape: [8B, 70B]\n", "scenario.yaml:9: in the point 2-shape=70B: "),
    ("vary: {accelerator: [a100, b100]}\n", "scenario.yaml:8: in the point 2-accelerator=b100: --accelerator 'b100' is none of"),
    ("polcy: sarathi\n", "unknown key 'polcy' in the config file"),
    ("max-num-seqs: 4\nmax_num_seqs: 5\n", "scenario.yaml:9: the key 'max_num_seqs' stands in line 8 already"),
    ("max-num-seqs:\n", "(line 8) has no value"),
    ("max-num-seqs: many\n", "scenario.yaml:8: --max-num-seqs: 'many'"),
    ("host: [{kv: 1GiB}, {gbps: 5}]\n", "scenario.yaml:8: --host 'gbps=5': its memory is missing"),
    ("host: {kv: [{a: 1}]}\n", "scenario.yaml:8: the key 'kv' of a host"),
    ("host-band: 0.2\n", "scenario.yaml:8: --host-band varies the bandwidth of a host, and there is none"),
    ("limit: soon\n", "scenario.yaml:8: --limit: 'soon'"),
    ("stream: [\n", "cannot be read: line"),
])
def test_what_is_wrong_is_named_before_anything_runs(binary, tmp_path, vary, said):
    path = scenario_file(tmp_path, BASE + vary)
    code, text = run(binary, "simulate", path, "-o", tmp_path / "out")
    assert code in (1, 2)
    assert said in text
    assert not (tmp_path / "out").exists(), "nothing is written"


def test_a_varied_key_is_not_a_flag_as_well(binary, tmp_path):
    path = scenario_file(tmp_path, TWO_KEYS)
    for flags in (["--policy", "sarathi"], ["--stream", "name=more;num-prompts=1"]):
        code, text = run(binary, "simulate", path, *flags, "-o", tmp_path / "out")
        assert code == 2 and f"{flags[0]} on the command line" in text and "scenario.yaml:" in text
    code, text = run(binary, "simulate", path)
    assert code == 2 and "-o DIR" in text


def test_files_and_folders_that_cannot_be_used(binary, tmp_path):
    path = scenario_file(tmp_path, TWO_KEYS)
    for name, said in ((tmp_path / "none.yaml", "no such file"), (tmp_path, "is a folder"), (binary, "cannot be read")):
        code, text = run(binary, "simulate", name, "-o", tmp_path / "out")
        assert code == 2 and said in text and str(name) in text
    (tmp_path / "file").write_text("")
    for scenario in (path, scenario_file(tmp_path, BASE)):
        code, text = run(binary, "simulate", scenario, "-o", tmp_path / "file")
        assert code == 2 and "is a file" in text
        code, text = run(binary, "simulate", scenario, "-o", "/proc/no-folder")
        assert code == 2 and "/proc/no-folder" in text and "cannot be made" in text
    assert (tmp_path / "file").read_text() == ""


def test_a_failed_point_does_not_stop_the_others(binary, tmp_path):
    path = scenario_file(tmp_path, BASE + "vary: {policy: [accel_only, sarathi]}\n")
    folder = tmp_path / "out" / "points" / "1-policy=accel_only"
    (folder / "report.html").mkdir(parents=True)  # which the point cannot write
    code, text = run(binary, "simulate", path, "-o", tmp_path / "out")
    assert code == 1
    assert "the point 1-policy=accel_only failed: exit code 1: " in text and "report.html" in text and "1 of 2 points ran" in text
    failed, ran = rows_of(tmp_path / "out" / "sweep.csv")
    assert failed["completed"] == "" and float(ran["completed"]) == 30
    points = json.loads((tmp_path / "out" / "sweep.json").read_text())["points"]
    assert "report.html" in points[0]["failure"] and "failure" not in points[1]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_points_and_says_which_are_complete(binary, tmp_path, sent):
    long = "vary: {stream.chat.num-prompts: [20, 400000, 500000]}\n"
    path = scenario_file(tmp_path, BASE.replace("random-output-len: 40", "random-output-len: 400") + long)
    process = subprocess.Popen([binary, "simulate", path, "-o", tmp_path / "out", "--jobs", "2"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    first = tmp_path / "out" / "points" / "1-chat.num-prompts=20" / "report.html"
    begun = tmp_path / "out" / "points" / "3-chat.num-prompts=500000" / "log"
    until = time.monotonic() + 60
    while not (first.exists() and begun.exists()) and time.monotonic() < until:
        time.sleep(0.05)
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 2
    process.send_signal(sent)
    text = process.communicate(timeout=20)[0]
    assert process.returncode == 130
    assert "stopped: 1 of 3 points are complete" in text and "1-chat.num-prompts=20" in text
    assert not any(os.path.exists(f"/proc/{child}") for child in children)
    assert not (tmp_path / "out" / "sweep.csv").exists()


def test_one_line_of_progress_on_a_terminal(binary, tmp_path):
    path = scenario_file(tmp_path, TWO_KEYS)
    main, other = pty.openpty()
    done = subprocess.run([binary, "simulate", path, "-o", tmp_path / "out", "--jobs", "1"], stdout=subprocess.DEVNULL, stderr=other, check=False)
    os.close(other)
    shown = os.read(main, 1 << 16).decode()
    os.close(main)
    assert done.returncode == 0
    assert "\r\033[K4 of 4 points in " in shown and shown.count("\n") == 1


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_run(binary, tmp_path, path):
    code, text = run(binary, "simulate", path, "-o", tmp_path)
    assert code == 0, text
    assert (tmp_path / ("sweep.html" if "vary" in path.read_text() else "report.html")).exists()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_document_shows_the_examples(path):
    documents = EXAMPLES[0].parent.parent / "docs"
    document = (documents / "simulation.md").read_text() + (documents / "several-engines.md").read_text()
    yaml = "".join(f"    {line}\n" for line in path.read_text().splitlines() if not line.startswith("#"))
    assert f"examples/{path.name}" in document and yaml in document
