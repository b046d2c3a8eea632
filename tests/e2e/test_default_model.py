"""The model that comes with Tandem, and `tandem bench serve --tasks`: questions whose right answers are known, asked under load. A wrong KV
block, a swapped row or a lost hop would show as another answer than the same question gets alone."""
import json
import random
import subprocess
import sys

import pytest
from conftest import ROOT, launch

MODEL = ROOT / "models" / "tandem-tiny"
TASKS = "add_3,subtract_3,compare,sort_8,spell,copy,look_up_100,look_up_500,story,about,refuse,turns"
MOST = 0.95  # docs/default-model.md has the accuracy of each ability
BULK = "name=bulk;service-tier=flex;request-rate=inf;num-prompts=40;random-input-len=200;random-output-len=60"


def write_tasks(folder, names, count):
    subprocess.run([sys.executable, "-B", ROOT / "tools/train/task_file.py", folder / "tasks.jsonl", "--count", str(count), "--tasks", names], check=True)
    return folder / "tasks.jsonl"


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    return write_tasks(tmp_path_factory.mktemp("tasks"), TASKS, 12)


def ask(binary, server, folder, *flags):
    """{id of the task: answer}, and the result."""
    done = subprocess.run([str(binary), "bench", "serve", "--base-url", server.url, "--result-filename", str(folder / "result.json"),
                           "--save-detailed", *map(str, flags)], capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((folder / "result.json").read_text())["tandem"]
    assert result["all"]["failed"] == 0
    return {one["task"]: one["answer"] for one in result["requests"] if "task" in one}, result, done.stdout


@pytest.fixture(scope="module")
def alone(binary, tasks, tmp_path_factory):
    """What the model says when it is asked one question after another, by a server that was given no model."""
    server = launch(binary, "default-model", None)
    assert server.openai().models.list().data[0].id == "tandem-tiny"
    answers, result, _ = ask(binary, server, tmp_path_factory.mktemp("alone"), "--tasks", tasks, "--max-concurrency", 1)
    server.stop_cleanly()
    return answers, result


def test_most_answers_are_right(alone):
    answers, result = alone
    assert len(answers) == 144
    right = {ability["name"]: ability["accuracy"] for ability in result["tasks"]}
    assert set(right) == set(TASKS.split(","))
    assert result["all"]["answers"]["accuracy"] > MOST, right
    assert sum(request["right"] for request in result["requests"]) == result["all"]["answers"]["right"]


@pytest.mark.core
def test_the_first_question_of_the_readme_is_answered(binary, start_server):
    server = start_server(None)
    answer = server.openai().chat.completions.create(model="tandem-tiny", messages=[{"role": "user", "content": "What is 47 + 38?"}])
    assert answer.choices[0].message.content == "47 + 38 = 85" and answer.choices[0].finish_reason == "stop"


def test_answers_under_load_are_those_of_a_quiet_server(binary, start_server, tasks, alone, tmp_path):
    server = start_server(None)
    chat = f"name=chat;tasks={tasks};service-tier=priority;request-rate=60"
    answers, result, table = ask(binary, server, tmp_path, "--stream", chat, "--stream", BULK, "--report", tmp_path / "report.html")
    assert answers == alone[0]
    by_name = {group["name"]: group for group in result["classes"]}
    assert by_name["chat"]["answers"]["judged"] == 144 and "answers" not in by_name["bulk"]
    assert by_name["chat"]["answers"]["right"] == alone[1]["all"]["answers"]["right"]
    assert "Right answers" in table and "Right answers" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("flags", [(), ("--backend", "openai-chat"), ("--random-prefix-len", 40)], ids=["completions", "chat", "shared prefixes"])
def test_prompts_of_a_load_have_the_planned_length(binary, start_server, tmp_path, flags):
    """The tokenizer cuts the first word of a text into letters, so that words cost different numbers of tokens there."""
    _, result, said = ask(binary, start_server(None), tmp_path, "--num-prompts", 20, "--random-input-len", 64, "--random-output-len", 2, *flags)
    planned = 64 + (40 if "--random-prefix-len" in flags else 0)
    assert json.loads((tmp_path / "result.json").read_text())["input_lens"] == [planned] * 20
    assert result["generator"]["other_input_lengths"] == 0 and "another length than planned" not in said


@pytest.mark.parametrize("policy", ["piggyback", "lanes", "neo_plus"])
def test_offloaded_answers_are_those_of_a_quiet_server(binary, start_server, tasks, alone, tmp_path, policy):
    """There are too few blocks for all questions, so most are decoded with their attention on the host."""
    server = start_server(None, "--emulate-accelerator", "auto", "--policy", policy, "--num-kv-blocks", 48, "--device-memory", "64MiB",
                          "--host-memory", "256MiB", "--max-num-seqs", 64, "--max-num-batched-tokens", 512, "--max-model-len", 1024)
    answers, _, _ = ask(binary, server, tmp_path, "--tasks", tasks, "--service-tier", "flex")
    assert answers == alone[0]
    assert server.metric("tandem_hops_total") > 100


@pytest.mark.parametrize("flags", [(), ("--emulate-accelerator", "auto", "--policy", "piggyback", "--num-kv-blocks", 120, "--device-memory", "128MiB",
                                        "--host-memory", "256MiB")], ids=["one tier", "two tiers"])
def test_a_code_is_found_in_long_documents_that_share_the_steps(binary, start_server, tmp_path, flags):
    """Up to 3,000 tokens each, in pieces of a few hundred. On two tiers two such documents fill the accelerator's blocks."""
    server = start_server(None, "--max-num-batched-tokens", 512, *flags)
    found = write_tasks(tmp_path, "look_up_3000", 12)
    _, result, _ = ask(binary, server, tmp_path, "--tasks", found, "--service-tier", "flex")
    assert result["all"]["answers"]["right"] >= 11
    assert not flags or server.metric("tandem_hops_total") > 100


WORDS = "Berlin quantum why sing 7 x ( ) < > % the of and blue whale tax Monday éclair 東京 ?! \n".split(" ")


@pytest.mark.core
def test_prompts_outside_its_abilities_end(start_server):
    random_ = random.Random(1)
    client = start_server(None).openai()
    for _ in range(60):
        words = " ".join(random_.choices(WORDS, k=random_.randint(1, 30)))
        said = client.chat.completions.create(model="tandem-tiny", messages=[{"role": "user", "content": words}])
        assert said.usage.completion_tokens <= 256, words  # the most that its generation_config.json allows


def test_tasks_that_cannot_be_asked_are_refused(binary, server, tmp_path, tasks):
    def refused(*flags):
        done = subprocess.run([str(binary), "bench", "serve", "--base-url", server.url, *map(str, flags)], capture_output=True, text=True,
                              timeout=60, stdin=subprocess.DEVNULL)
        assert done.returncode == 2
        return done.stderr

    assert "no such file" in refused("--tasks", tmp_path / "none.jsonl")
    (tmp_path / "bad.jsonl").write_text(tasks.read_text().splitlines()[0] + "\n{}\n")
    assert "bad.jsonl:2: 'version' is not 1" in refused("--tasks", tmp_path / "bad.jsonl")
    assert "leave --endpoint out" in refused("--tasks", tasks, "--endpoint", "/v1/completions")
    done = subprocess.run([str(binary), "simulate", "-o", str(tmp_path / "out"), "--tasks", str(tasks)], capture_output=True, text=True,
                          timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode != 0 and "computes no answers" in done.stderr, done.stderr
