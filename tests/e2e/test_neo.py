"""Policies that plan lanes or overlap, over HTTP on two tiers: a load that the accelerator cannot hold gets the plain server's texts, is recorded, and replayed plan by plan."""
import json
import subprocess

import pytest
from conftest import GOLDENS, launch
from server import until
from test_two_tiers import FLAGS, REQUESTS, answers

MODEL = GOLDENS / "llama-gqa-rope3-f32"
TIERS = ("--emulate-accelerator", "auto", "--num-kv-blocks", "8", "--device-memory", "64MiB", "--host-memory", "64MiB")


@pytest.fixture(scope="module")
def plain_answers(binary):
    server = launch(binary, "one-tier-for-neo", MODEL, *FLAGS)
    yield answers(server)
    server.stop_cleanly()


@pytest.fixture(scope="module")
def profile(binary, tmp_path_factory):
    path = tmp_path_factory.mktemp("neo") / "profile.json"
    made = subprocess.run([str(binary), "profile", str(MODEL), "-o", str(path), "--time", "1s", "--held-out", "5", *FLAGS[2:], *TIERS],
                          capture_output=True, text=True, timeout=120)
    assert made.returncode == 0, made.stdout + made.stderr
    # Times at which lanes pay, whatever this machine does meanwhile: policies must plan the same on a busy one.
    measured = json.loads(path.read_text())
    measured["modular"]["dense"] = [[1, 100_000], [256, 400_000]]
    measured["modular"]["per_visit"] = 500
    measured["host"]["attention"] = {"per_context": 1, "per_row": 200, "fixed": 5_000}
    measured["host"]["launch"] = {"per_group": 5_000, "per_visit": 100}
    path.write_text(json.dumps(measured))
    return path


@pytest.mark.parametrize("policy", ["neo", "neo_capped", "neo_plus", "fastdecode", "apex", "apex_plus"])
def test_a_load_beyond_the_accelerator_has_the_plain_texts_and_replays_exactly(binary, start_server, plain_answers, profile, tmp_path, policy):
    record = tmp_path / "run.jsonl"
    server = start_server(MODEL, *FLAGS, *TIERS, "--policy", policy, "--profile", profile, "--record-out", record)
    assert answers(server) == plain_answers
    assert server.metric("tandem_tier_transfer_bytes_total") > 0
    assert until(server.is_idle)
    assert server.metric("tandem_offloaded_sequences") == 0
    assert server.metric("tandem_host_kv_blocks_in_use") == 0
    server.stop_cleanly()
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    visits = sum(line.get("visits", 0) for line in lines if "result" in line)
    if policy in ("neo", "neo_capped", "fastdecode"):
        assert visits > REQUESTS
    # The others weigh the visits of each step by the profile: where the host is slow, a sequence waits there until it can come back.
    done = subprocess.run([str(binary), "replay", str(record), "--model", str(MODEL)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "identical" in done.stdout, done.stdout + done.stderr


def test_the_bound_on_holding_reaches_server_record_and_replay(binary, start_server, plain_answers, profile, tmp_path):
    record = tmp_path / "run.jsonl"
    server = start_server(MODEL, *FLAGS, *TIERS, "--policy", "neo", "--max-held-steps", "1", "--profile", profile, "--record-out", record)
    assert answers(server) == plain_answers
    begun = server.metric("tandem_held_tokens_begun_total")
    changes = server.metric("tandem_step_mode_changes_total")
    server.stop_cleanly()
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    plans = [line for line in lines if "plan" in line]
    assert begun == sum(len(plan.get("let_in", [])) for plan in plans)
    assert changes > 0
    done = subprocess.run([str(binary), "replay", str(record), "--model", str(MODEL)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "identical" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("policy", ["fastdecode", "apex", "apex_plus"])
@pytest.mark.parametrize("way", ["staged", "offload"])
def test_prompts_go_straight_to_the_host_unless_they_are_to_be_offloaded(binary, start_server, plain_answers, profile, tmp_path, policy, way):
    record = tmp_path / "run.jsonl"
    server = start_server(MODEL, *FLAGS, *TIERS, "--policy", policy, "--prompts-to-host", way, "--profile", profile, "--record-out", record)
    assert answers(server) == plain_answers
    straight = server.metric("tandem_prompts_straight_to_host_total")
    server.stop_cleanly()
    plans = [line for line in map(json.loads, record.read_text().splitlines()) if "plan" in line]
    assert straight == sum(len(plan.get("straight_to_host", [])) for plan in plans)
    if way == "offload":
        assert straight == 0
    elif policy != "apex_plus":  # it computes no prompt for a host that is late by its profile
        assert straight > 0
    done = subprocess.run([str(binary), "replay", str(record), "--model", str(MODEL)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "identical" in done.stdout, done.stdout + done.stderr


def test_a_profile_of_one_tier_is_refused_where_the_host_is_planned_with(binary, profile, tmp_path):
    one_tier = tmp_path / "one-tier.json"
    one_tier.write_text(json.dumps({**json.loads(profile.read_text()), "host": None}))
    done = subprocess.run([str(binary), "serve", str(MODEL), "--port", "0", *FLAGS, *TIERS, "--policy", "neo_plus", "--profile", str(one_tier)], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode != 0 and "measured on one tier" in done.stdout + done.stderr, done.stdout + done.stderr


def test_a_model_of_whole_steps_is_refused_by_name(binary, tmp_path):
    done = subprocess.run([str(binary), "serve", str(MODEL), "--port", "0", "--policy", "neo", "--time-model", "regression"], capture_output=True,
                          text=True, timeout=120, env={"XDG_CACHE_HOME": str(tmp_path), "PATH": "/usr/bin"})
    assert done.returncode == 2 and "--time-model modular" in done.stdout + done.stderr
