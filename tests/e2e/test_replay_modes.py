"""Records of two tiers, one for each rule by which offloaded tokens join a step: a replay compares the mode of every step, the lanes and what
the binder decided, and names what differs. Records of earlier builds lack these fields and still replay."""
import concurrent.futures
import copy
import json
import subprocess

import pytest
from conftest import GOLDENS

MODEL = GOLDENS / "llama-gqa-rope3-f32"
FLAGS = ("--max-num-seqs", "32", "--max-num-batched-tokens", "256", "--emulate-accelerator", "auto", "--num-kv-blocks", "8", "--device-memory",
         "64MiB", "--host-memory", "64MiB", "--offload-below", "100", "--onload-above", "100")


def ask(server, i):
    done = server.openai().completions.create(model=server.model_name(), prompt=f"request {i}: " + "the fox and the hen " * (1 + i % 4),
                                              max_tokens=30 + i, temperature=0, extra_body={"service_tier": "flex", "ignore_eos": True})
    return done.choices[0].text


def replayed(binary, tmp_path, lines):
    path = tmp_path / "changed.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return subprocess.run([str(binary), "replay", str(path), "--model", str(MODEL)], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("policy", ["piggyback", "overlap", "lanes"])
def test_a_difference_in_mode_lanes_or_binds_is_named(binary, start_server, tmp_path, policy):
    record = tmp_path / "run.jsonl"
    server = start_server(MODEL, *FLAGS, "--policy", policy, "--record-out", record)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(lambda i: ask(server, i), range(16)))
    server.stop_cleanly()
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    plans = [line for line in lines if "plan" in line]
    assert all("mode" in line for line in plans)
    assert any(line["mode"] == "lanes" for line in plans) == (policy == "lanes")
    done = replayed(binary, tmp_path, lines)
    assert done.returncode == 0 and "identical" in done.stdout, done.stdout + done.stderr

    def differs(find, change, *words):
        changed = copy.deepcopy(lines)
        change(next(line for line in changed if find(line)))
        done = replayed(binary, tmp_path, changed)
        assert done.returncode == 1 and all(word in done.stdout for word in words), done.stdout + done.stderr

    differs(lambda line: "plan" in line, lambda line: line.update(mode="other"), "plan of step", "'mode' differs")
    if policy == "lanes":
        differs(lambda line: line.get("first_lane"), lambda line: line["first_lane"].pop(), "plan of step", "'first_lane' differs")

    def joins(line):
        return any(any(bind.get("visitors", [])) for bind in line.get("binds", []))

    def send_away(line):
        bind = next(bind for bind in line["binds"] if any(bind.get("visitors", [])))
        bind["visitors"] = [0] * len(bind["visitors"])

    differs(joins, send_away, "result of step", "bind ", "'visitors'")

    for line in lines:
        for field in ("mode", "first_lane", "binds"):
            line.pop(field, None)
    done = replayed(binary, tmp_path, lines)
    assert done.returncode == 0 and "identical" in done.stdout, done.stdout + done.stderr
