"""The command line: help, exit codes, made models, broken model folders."""
import json
import os
import pathlib
import shutil
import struct
import subprocess

import pytest

GOLDENS = pathlib.Path(__file__).resolve().parent.parent / "goldens"
LLAMA = GOLDENS / "llama-gqa-rope3-f32"


def run(binary, *arguments, seconds=120):
    done = subprocess.run([str(binary), *map(str, arguments)], capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("command", [(), ("serve",), ("model",), ("model", "make"), ("model", "info"), ("bench",), ("bench", "serve"), ("bench", "tiers"), ("batch",), ("batch", "run"), ("replay",), ("simulate",)], ids=" ".join)
def test_help_is_everywhere(binary, command):
    code, text = run(binary, *command, "--help")
    assert code == 0
    assert "--help" in text


def test_usage_errors_are_code_2_and_name_the_nearest_flag(binary):
    code, text = run(binary, "serve", LLAMA, "--max-num-seq", "4")
    assert code == 2
    assert "--max-num-seqs" in text
    for arguments, near in ((["serv"], "serve"), (["bath", "run"], "batch"), (["model", "mak"], "make")):
        code, text = run(binary, *arguments)
        assert code == 2
        assert f"unknown subcommand '{arguments[-1] if arguments[0] == 'model' else arguments[0]}', did you mean {near}?" in text
    code, text = run(binary, "no-such-command")
    assert code == 2
    assert "no-such-command" in text and "serve" in text
    assert run(binary, "serve", LLAMA, "--max-num-seqs", "many")[0] == 2


def test_made_models_are_repeatable_and_described(binary, tmp_path):
    for name in ("one", "two"):
        code, text = run(binary, "model", "make", "--preset", "tiny", "--seed", "5", tmp_path / name)
        assert code == 0, text
    assert run(binary, "model", "make", "--preset", "tiny", "--seed", "6", tmp_path / "three")[0] == 0
    weights = [sorted(p.read_bytes() for p in (tmp_path / name).glob("*.safetensors")) for name in ("one", "two", "three")]
    assert weights[0] == weights[1] != weights[2]
    config = json.loads((tmp_path / "one" / "config.json").read_text())
    code, text = run(binary, "model", "info", tmp_path / "one")
    assert code == 0
    assert str(config["hidden_size"]) in text


def test_a_made_model_serves_and_answers_chat(binary, tmp_path, start_server):
    assert run(binary, "model", "make", "--preset", "tiny", "--seed", "1", tmp_path / "tiny")[0] == 0
    server = start_server(tmp_path / "tiny")
    reply = server.openai().chat.completions.create(model=server.model_name(), messages=[{"role": "user", "content": "Hi"}], max_tokens=5)
    assert reply.usage.completion_tokens >= 1


def test_a_recorded_run_replays_exactly(binary, tmp_path, start_server):
    record = tmp_path / "run.jsonl"
    server = start_server(LLAMA, "--served-model-name", "golden", "--record-out", record, "--block-size", "32")
    client = server.openai()
    for seed in range(4):
        client.completions.create(model="golden", prompt="Hello " * (1 + 20 * seed), max_tokens=30, seed=seed, temperature=0.8, n=2)
    client.completions.create(model="golden", prompt="Hello " * 41, max_tokens=5, echo=True, logprobs=1)  # takes nothing from the cache
    client.completions.create(model="golden", prompt="Hello " * 61, max_tokens=30)  # takes its prompt from the cache, draws a seed
    server.stop_cleanly()
    code, text = run(binary, "replay", record, "--model", LLAMA)
    assert code == 0, text
    assert "was cut" not in text
    assert "identical" in text
    record.write_text(record.read_text()[:-200])  # cut in mid-line, as a full disk leaves it
    code, text = run(binary, "replay", record, "--model", LLAMA)
    assert "terminate called" not in text and code in (0, 1)


def test_a_replay_takes_the_records_kernels(binary, tmp_path, start_server):
    record = tmp_path / "run.jsonl"
    server = start_server(LLAMA, "--served-model-name", "golden", "--record-out", record, env={"TANDEM_ISA": "ref"})
    server.openai().completions.create(model="golden", prompt="Hello", max_tokens=30, seed=1, temperature=1)
    assert "kernels: ref (as asked for)" in server.log.read_text()
    server.stop_cleanly()
    code, text = run(binary, "replay", record, "--model", LLAMA)
    assert code == 0 and "identical" in text and "kernels" not in text, text
    lines = record.read_text().splitlines(keepends=True)
    assert '"isa":"ref"' in lines[0]
    for isa, said in (("neon", "cannot run the neon kernels"), ("ref:4,avx2", "cannot mix"), ("sse9", "no kernels that this build knows")):
        (tmp_path / "other.jsonl").write_text(lines[0].replace('"isa":"ref"', f'"isa":"{isa}"') + "".join(lines[1:]))
        code, text = run(binary, "replay", tmp_path / "other.jsonl", "--model", LLAMA)
        assert said in text and "texts may differ" in text, text
    done = subprocess.run([str(binary), "replay", str(record), "--model", str(LLAMA)], env=os.environ | {"TANDEM_ISA": "avx2"}, capture_output=True, text=True, timeout=120)
    assert "asked to use 'avx2'" in done.stdout


def test_kernels_that_are_none_are_refused(binary):
    for isa, said in (("sse", "unknown instruction set"), ("avx2,avx512", "names no kernels"), ("ref:4,avx2", "cannot mix")):
        done = subprocess.run([str(binary), "serve", str(LLAMA), "--port", "0"], env=os.environ | {"TANDEM_ISA": isa}, capture_output=True, text=True, timeout=60)
        assert done.returncode != 0 and said in done.stdout + done.stderr, done.stdout + done.stderr


def test_a_record_with_lines_out_of_order_ends_with_an_error(binary, tmp_path, start_server):
    record = tmp_path / "run.jsonl"
    server = start_server(LLAMA, "--served-model-name", "golden", "--record-out", record)
    server.openai().completions.create(model="golden", prompt="Hello", max_tokens=6, n=2)
    server.stop_cleanly()
    lines = record.read_text().splitlines(keepends=True)
    results = [at for at, line in enumerate(lines) if line.startswith('{"result":')]
    plans = [at for at, line in enumerate(lines) if line.startswith('{"plan":')]
    first, second = results[:2]
    forged = {"without a result": lines[:first] + lines[first + 1:],
              "a result twice": lines[:first] + [lines[first]] + lines[first:],
              "a result before its plan": lines[:plans[0]] + [lines[first], lines[plans[0]]] + lines[first + 1:],
              "results alone": [line for line in lines if '"plan"' not in line],
              "without arrivals": [line for line in lines if '"arrival"' not in line],
              "without results": [line for line in lines if '"result"' not in line],
              "results changed round": lines[:first] + [lines[second]] + lines[first + 1:second] + [lines[first]] + lines[second + 1:],
              "backwards": lines[:1] + lines[:0:-1]}
    for name, content in forged.items():
        (tmp_path / "forged.jsonl").write_text("".join(content))
        code, text = run(binary, "replay", tmp_path / "forged.jsonl", "--model", LLAMA, seconds=60)
        assert (code, "order of a run" in text, "DIFFERENT" in text) in ((2, True, False), (1, False, True)), f"{name}: {code} {text}"


def test_a_replay_that_differs_says_whether_another_build_recorded(binary, tmp_path, start_server):
    record = tmp_path / "run.jsonl"
    server = start_server(LLAMA, "--served-model-name", "golden", "--record-out", record)
    server.openai().completions.create(model="golden", prompt="Hello", max_tokens=6)
    server.stop_cleanly()
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    next(line for line in lines if line.get("tokens"))["tokens"][0][1] += 1  # the token of its first sequence
    for build, said in ((lines[0]["build"], False), ("another", True), (None, True)):
        head = {key: value for key, value in (lines[0] | {"build": build}).items() if value is not None}
        (tmp_path / "forged.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [head, *lines[1:]]))
        code, text = run(binary, "replay", tmp_path / "forged.jsonl", "--model", LLAMA, seconds=60)
        assert code == 1 and "DIFFERENT" in text and ("the build that made it" in text) == said, text


def spoil_config(**changes):
    def spoil(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return spoil


def edit_header(change):
    """Rewrites the JSON header of model.safetensors; offsets keep pointing into the same data."""
    def spoil(folder):
        path = folder / "model.safetensors"
        data = path.read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + size])
        change(header)
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size:])
    return spoil


def truncate(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def huge_header(folder):
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 1 << 60) + path.read_bytes()[8:])


def nan_weights(folder):
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-4:] = struct.pack("<f", float("nan"))
    path.write_bytes(bytes(data))


def overlap(header):
    names = sorted(name for name in header if name != "__metadata__" and name.endswith("q_proj.weight"))
    header[names[0]]["data_offsets"] = header[names[1]]["data_offsets"]


def index(weight_map):
    def spoil(folder):
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return spoil


BROKEN = {
    "no-config": (lambda f: (f / "config.json").unlink(), "config.json"),
    "config-not-json": (lambda f: (f / "config.json").write_text("{"), "config.json"),
    "unknown-architecture": (spoil_config(architectures=["MambaForCausalLM"], model_type="mamba"), "MambaForCausalLM"),
    "huge-hidden": (spoil_config(hidden_size=1 << 60), "hidden_size"),
    "negative-layers": (spoil_config(num_hidden_layers=-1), "num_hidden_layers"),
    "wrong-shape": (spoil_config(intermediate_size=300), "mlp"),
    "heads-do-not-divide": (spoil_config(num_key_value_heads=3), "num_key_value_heads"),
    "head-too-wide": (spoil_config(head_dim=1024), "head_dim"),
    "config-is-a-folder": (lambda f: ((f / "config.json").unlink(), (f / "config.json").mkdir()), "config.json"),
    "empty-folder": (lambda f: (shutil.rmtree(f), f.mkdir()), "config.json"),
    "weights-are-a-pipe": (lambda f: ((f / "model.safetensors").unlink(), os.mkfifo(f / "model.safetensors")), "model.safetensors"),
    "index-out-of-the-folder": (index({"model.norm.weight": "../../etc/passwd"}), "weight_map"),
    "index-of-a-missing-shard": (index({"model.norm.weight": "model-00001-of-00002.safetensors"}), "model-00001-of-00002.safetensors"),
    "negative-offset": (edit_header(lambda h: h["model.norm.weight"].update(data_offsets=[-4, 284])), "model.norm.weight"),
    "config-deep": (lambda f: (f / "config.json").write_text("[" * 200000), "config.json"),
    "quantised": (spoil_config(quantization_config={"quant_method": "gptq"}), "quantization_config"),
    "generation-config": (lambda f: (f / "generation_config.json").write_text('{"temperature": '), "generation_config.json: is not valid JSON"),
    "template": (lambda f: (f / "tokenizer_config.json").write_text('{"chat_template": "{% for x in %}"}'), "chat_template"),
    "no-weights": (lambda f: (f / "model.safetensors").unlink(), "safetensors"),
    "truncated": (truncate, "model.safetensors"),
    "huge-header": (huge_header, "model.safetensors"),
    "missing-tensor": (edit_header(lambda h: h.pop("model.layers.1.mlp.up_proj.weight")), "model.layers.1.mlp.up_proj.weight"),
    "out-of-range": (edit_header(lambda h: h["model.norm.weight"].update(data_offsets=[1 << 40, (1 << 40) + 288])), "model.norm.weight"),
    "huge-shape": (edit_header(lambda h: h["model.norm.weight"].update(shape=[1 << 60])), "model.norm.weight"),
    "overlapping": (edit_header(overlap), "q_proj.weight"),
    "nan": (nan_weights, "NaN"),
    "no-tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer"),
    "tokenizer-not-json": (lambda f: (f / "tokenizer.json").write_text("[1"), "tokenizer.json"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_model_folder_is_one_clear_error(binary, tmp_path, name):
    spoil, named = BROKEN[name]
    folder = tmp_path / "broken"
    shutil.copytree(LLAMA, folder)
    spoil(folder)
    code, text = run(binary, "serve", folder, "--port", "0")
    assert code in (1, 2), text
    assert named.lower() in text.lower(), text
    assert len([line for line in text.splitlines() if " error " in line]) == 1, text
    assert "terminate called" not in text and "Sanitizer" not in text


def test_what_is_not_supported_names_what_is(binary, tmp_path):
    for number, (changes, names) in enumerate([
        (dict(architectures=["GPT2LMHeadModel"]), ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")),
        (dict(rope_scaling={"rope_type": "longrope", "factor": 2.0}), ("default", "linear", "dynamic", "yarn", "llama3")),
    ]):
        folder = tmp_path / str(number)
        shutil.copytree(LLAMA, folder)
        spoil_config(**changes)(folder)
        code, text = run(binary, "serve", folder, "--port", "0")
        assert code in (1, 2), text
        assert all(name in text for name in names), text


def test_a_config_file_that_cannot_be_read_is_an_error(binary, tmp_path):
    for path in (tmp_path, tmp_path / "none.yaml"):
        code, text = run(binary, "serve", LLAMA, "--config", path)
        assert code == 2 and str(path) in text and "terminate called" not in text


def test_a_hub_id_or_a_missing_folder_is_explained(binary, tmp_path):
    for name in ("meta-llama/Llama-3.1-8B-Instruct", "/no/such/folder"):
        code, text = run(binary, "serve", name, "--offline", "--hub-cache", tmp_path)
        assert code in (1, 2)
        assert name in text and "folder" in text.lower()


@pytest.mark.parametrize("policy", ["piggyback", "overlap", "lanes"])
def test_bench_tiers_measures_offloaded_decode_without_weights(binary, tmp_path, policy):
    result = tmp_path / "tiers.json"
    code, text = run(
        binary, "bench", "tiers", "--shape", "tiny", "--pace", "t4", "--policy", policy, "--residents", 2, "--resident-prompt", 16,
        "--offloaded", 4, "--offloaded-prompt", 40, "--seconds", 0.3, "--rounds", 1, "--json", result,
    )
    assert code == 0, text
    assert "best effort:" in text and "hollow" in text
    found = json.loads(result.read_text())
    assert found["hollow"] is True and found["policy"] == policy
    assert found["best_effort_tokens_per_second"] > 0
    assert found["host_frozen"][0]["steps"] > 0, "residents go on without the host"
    assert found["config"]["policy"] == policy and found["config"]["offload_below"] == 100 and found["config"]["memory_plan_bytes"]
    assert found["flags"]["seconds"] == "0.3" and found["flags"]["host-cores"] == "1"
    assert found["regime"] in ("host memory (sequences)", "host bandwidth", "link")


def test_bench_tiers_says_that_sequences_ended_too_early(binary):
    code, text = run(binary, "bench", "tiers", "--shape", "tiny", "--pace", "t4", "--residents", 2, "--resident-prompt", 16, "--offloaded", 4, "--output", 8)
    assert code == 1 and "after its 8 tokens" in text and "--output" in text


def test_bench_scheduler_measures_as_many_sequences_as_it_says(binary):
    code, text = run(binary, "bench", "scheduler", "--running", 60, "--waiting", 500, "--line", 16, "--steps", 4, "--two-tier-running", 16, "--two-tier-offloaded", 8)
    assert code == 0 and 57 <= int(text.split(" running, ")[0]) <= 60 and "16 of these in the line" in text, text
    code, text = run(binary, "bench", "scheduler", "--running", 1800, "--waiting", 500, "--steps", 4)
    assert code == 1 and "of 1800 sequences run" in text and "lower --running" in text, text


def test_bench_tiers_says_what_it_cannot_do(binary):
    code, text = run(binary, "bench", "tiers", "--shape", "5B")
    assert code == 2 and "34B" in text
    code, text = run(binary, "bench", "tiers", "--shape", "8B", "--step-ms", "1", "--residents", 2, "--offloaded", 2)
    assert code == 2 and "--step-ms" in text


NODES = pathlib.Path("/sys/devices/system/node/online")


def test_memory_nodes_are_chosen_by_flag_and_change_no_answer(binary, start_server):
    answers = set()
    choices = ["auto", "off"] + ([NODES.read_text().strip().split("-")[0].split(",")[0]] if NODES.exists() else [])
    for choice in choices:
        server = start_server(LLAMA, "--numa", choice)
        reply = server.openai().completions.create(model=server.model_name(), prompt=[3, 5, 7, 11], max_tokens=8, temperature=0)
        answers.add(reply.choices[0].text)
    assert len(answers) == 1


@pytest.mark.parametrize("choice", ["", "on", "1-0", "0,", "-1", "99999", "0-99999999999999999999"])
def test_lists_of_memory_nodes_that_make_no_sense_are_refused(binary, choice):
    code, text = run(binary, "serve", LLAMA, f"--numa={choice}")
    assert code == 2
    assert "--numa" in text


def test_a_memory_node_that_is_not_there_is_refused_by_name(binary):
    code, text = run(binary, "serve", LLAMA, "--numa", "1023")
    assert code == 2
    assert "node 1023" in text and "choose among" in text


@pytest.mark.skipif(shutil.which("taskset") is None, reason="taskset is not installed")
def test_one_thread_runs_where_one_cpu_is_allowed(binary, tmp_path):
    cpu = min(os.sched_getaffinity(0))
    kept = tmp_path / "tandem"
    kept.write_text(f'#!/bin/sh\nexec taskset -c {cpu} "{binary}" "$@"\n')
    kept.chmod(0o755)
    code, text = run(kept, "bench", "model", LLAMA, "--prompt", "4", "--output", "2", "--passes", "1")
    assert code == 0
    assert "1 thread)" in text or "1 thread," in text, text
