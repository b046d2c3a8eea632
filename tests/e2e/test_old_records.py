"""Records of an earlier build: plans and tokens must be the same today. tests/records/README.md says how they were made."""
import json
import subprocess

import pytest
from conftest import GOLDENS, ROOT

MODEL = GOLDENS / "llama-gqa-rope3-f32"
RECORDS = sorted((ROOT / "tests" / "records").glob("*/*.jsonl"))


def replayed(binary, path):
    return subprocess.run([str(binary), "replay", str(path), "--model", str(MODEL)], capture_output=True, text=True, timeout=120)


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_plan_and_token_is_the_same(binary, path):
    results = [line for line in lines_of(path) if "result" in line]
    tokens = sum(len(line["tokens"]) for line in results)
    done = replayed(binary, path)
    assert done.returncode == 0, done.stdout + done.stderr
    first, *others = done.stdout.splitlines()
    assert first.startswith(f"{len(results)} steps, ") and first.endswith(f" {tokens} tokens replayed")
    assert others == ["identical: every view, plan and token"]


def test_other_plans_and_tokens_are_named(binary, tmp_path):
    def differs(find, change, *words):
        lines = lines_of(RECORDS[0])
        change(next(line for line in lines if find(line)))
        changed = tmp_path / "changed.jsonl"
        changed.write_text("".join(json.dumps(line) + "\n" for line in lines))
        done = replayed(binary, changed)
        assert done.returncode == 1 and all(word in done.stdout for word in words), done.stdout + done.stderr

    differs(lambda line: len(line.get("slices", [])) > 1, lambda line: line["slices"].pop(), "the plan of step", "'slices' differs")
    differs(lambda line: len(line.get("tokens", [])) > 1, lambda line: line["tokens"].reverse(), "the result of step", "'tokens' differs")


def test_options_that_the_policy_does_not_read_may_have_any_value(binary, tmp_path):
    lines = lines_of(RECORDS[0])
    assert lines[0]["config"]["policy"] == "sarathi"
    changed = tmp_path / "changed.jsonl"
    for name, code in [("flex_rate", 0), ("sarathi_token_budget", 2)]:
        lines = lines_of(RECORDS[0])
        lines[0]["config"][name] = -5
        changed.write_text("".join(json.dumps(line) + "\n" for line in lines))
        done = replayed(binary, changed)
        assert done.returncode == code, done.stdout + done.stderr
        assert code == 0 or "the record's configuration is broken: sarathi_token_budget: " in done.stderr
