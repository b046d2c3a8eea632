"""Step times: `tandem profile`, what serve makes of the file, and what it says about its error."""
import json
import os
import subprocess

import pytest

from conftest import GOLDENS

MODEL = GOLDENS / "llama-gqa-rope3-f32"
FLAGS = ("--max-model-len", "256", "--max-num-batched-tokens", "128", "--max-num-seqs", "8", "--device-memory", "512MiB")


def profile(binary, model, *flags, expect=0):
    run = subprocess.run([str(binary), "profile", str(model), *FLAGS, *map(str, flags)], capture_output=True, text=True, timeout=120)
    assert run.returncode == expect, run.stdout + run.stderr
    return run.stdout + run.stderr


@pytest.fixture(scope="module")
def measured(binary, tmp_path_factory):
    path = tmp_path_factory.mktemp("profile") / "tiny.json"
    said = profile(binary, MODEL, "-o", path, "--time", "3s", "--held-out", "5")
    return path, said


def test_profile_prints_its_error_and_writes_a_file(measured):
    path, said = measured
    assert "held-out random batches" in said and "the same batch, run again" in said and "modular" in said
    content = json.loads(path.read_text())
    assert content["tandem_profile"] == 1
    assert content["identity"]["threads"] >= 1 and content["identity"]["isa"]
    times = [nanos for _, nanos in content["modular"]["dense"]]
    assert times == sorted(times) and times[0] > 0


def test_a_server_with_a_profile_publishes_how_well_it_predicts(start_server, measured):
    server = start_server(MODEL, *FLAGS, "--profile", measured[0])
    server.openai().completions.create(model=server.model_name(), prompt="Once", max_tokens=16, extra_body={"ignore_eos": True})
    page = server.metrics()
    predicted = [value for name, labels, value in page
                 if name == "tandem_step_time_error_ratio_count" and labels["regime"] == "decode"]
    assert predicted == [15.0]
    corrections = [value for name, _, value in page if name == "tandem_step_time_correction"]
    assert corrections and all(0.5 <= value <= 2 for value in corrections)


def test_a_server_without_one_measures_and_keeps_it(start_server, tmp_path):
    path = tmp_path / "new" / "profile.json"
    server = start_server(MODEL, *FLAGS, "--profile", path)
    assert json.loads(path.read_text())["tandem_profile"] == 1
    accuracy = json.loads(path.read_text())["accuracy"]["modular"]
    said = f"{accuracy['batches']} held-out batches are {accuracy['mean'] * 100:.1f} % accurate in the mean, nine of ten at least {accuracy['p90'] * 100:.1f} %"
    assert "profile of" in server.log.read_text() and said in server.log.read_text()


def test_a_profile_of_another_build_is_used_if_it_is_named(start_server, measured, tmp_path):
    path = tmp_path / "older.json"
    content = json.loads(measured[0].read_text())
    content["identity"]["build"] = "0" * 16
    path.write_text(json.dumps(content))
    server = start_server(MODEL, *FLAGS, "--profile", path)
    said = server.log.read_text()
    assert "measured with another build of Tandem" in said and "anew" not in said
    assert json.loads(path.read_text()) == content


def test_a_profile_of_another_build_is_measured_anew_in_the_cache(start_server, measured, tmp_path):
    def kept():
        return json.loads(next((tmp_path / "tandem" / "profiles").glob("*.json")).read_text())
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    flags = (*FLAGS, "--policy", "omniserve")
    start_server(MODEL, *flags, env=environment).stop_cleanly()
    first = kept()
    assert first["identity"]["build"] == json.loads(measured[0].read_text())["identity"]["build"]
    path = next((tmp_path / "tandem" / "profiles").glob("*.json"))
    path.write_text(json.dumps(first | {"identity": first["identity"] | {"build": "0" * 16}}))
    said = start_server(MODEL, *flags, env=environment).log.read_text()
    assert "measured with another build of Tandem" in said and "it is measured anew" in said
    assert kept()["identity"] == first["identity"]


def test_a_profile_brings_its_kernels(binary, start_server, tmp_path):
    path = tmp_path / "plain.json"
    run = subprocess.run([str(binary), "profile", str(MODEL), *FLAGS, "-o", str(path), "--time", "2s", "--held-out", "3"], env=os.environ | {"TANDEM_ISA": "ref"},
                         capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    assert json.loads(path.read_text())["identity"]["isa"] == "ref"
    server = start_server(MODEL, *FLAGS, "--profile", path)
    assert "kernels: ref (as the profile was measured)" in server.log.read_text()
    with server.http() as http:
        assert http.get("/v1/tandem/config").json()["isa"] == "ref"


def test_a_second_tier_is_measured_and_its_server_takes_the_profile(binary, start_server, tmp_path):
    path = tmp_path / "tiers.json"
    flags = ("--emulate-accelerator", "link-gbps=1", "--host-memory", "64MiB", "--policy", "omniserve")
    said = profile(binary, MODEL, *flags, "-o", path, "--time", "3s", "--held-out", "5")
    assert "host attention:" in said and "link from the host:" in said and "us a visit" in said
    host = json.loads(path.read_text())["host"]
    assert all(host["attention"][name] >= 0 for name in ("per_context", "per_row", "fixed")) and sum(host["attention"].values()) > 0
    for way in ("from_host", "to_host"):  # on a busy machine one of the two may be all that the fit finds
        assert min(host[way]["alpha"], host[way]["beta"]) >= 0 and max(host[way]["alpha"], host[way]["beta"]) > 0
    assert host["launch"]["per_group"] > 0
    server = start_server(MODEL, *FLAGS, *flags, "--profile", path)
    answer = server.openai().completions.create(model=server.model_name(), prompt="Once", max_tokens=8, extra_body={"service_tier": "flex"})
    assert answer.choices[0].text


@pytest.mark.parametrize("spoil, naming", [
    (lambda p: p["identity"].update(cpu="Another CPU"), "CPU 'Another CPU'"),
    (lambda p: p["identity"].update(threads=4000), "threads '4000'"),
    (lambda p: p["modular"]["decode"].update(per_context=-1), "decode.per_context"),
    (lambda p: p["modular"]["dense"][-1].__setitem__(1, 0), "more must not be cheaper"),
    (lambda p: p.update(tandem_profile=99), "version is 99"),
])
def test_a_profile_that_is_wrong_or_of_another_machine_is_refused(binary, measured, tmp_path, spoil, naming):
    content = json.loads(measured[0].read_text())
    spoil(content)
    path = tmp_path / "spoilt.json"
    path.write_text(json.dumps(content))
    run = subprocess.run([str(binary), "serve", str(MODEL), *FLAGS, "--port", "0", "--profile", str(path)],
                         capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert naming in run.stdout + run.stderr and str(path) in run.stdout + run.stderr


def test_a_run_with_predictions_replays(binary, start_server, measured, tmp_path):
    record = tmp_path / "run.jsonl"
    server = start_server(MODEL, *FLAGS, "--profile", measured[0], "--record-out", record)
    server.openai().completions.create(model=server.model_name(), prompt="Once", max_tokens=8)
    server.stop_cleanly()
    assert '"predicted_ns"' in record.read_text()
    run = subprocess.run([str(binary), "replay", str(record), "--model", str(MODEL)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0 and "identical" in run.stdout, run.stdout + run.stderr
