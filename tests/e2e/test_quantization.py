"""--quantization: weights of a checkpoint in 8 or 4 bits, rounded at load. What the server says of them, that they save memory, that a
record replays, that the prefix cache and two tiers change no answer, and that a story stays a story."""
import concurrent.futures
import json
import re
import subprocess

import pytest
from conftest import GOLDENS

MODEL = GOLDENS / "llama-gqa-rope3-f32"
FLAGS = ("--served-model-name", "golden", "--max-num-seqs", "32", "--max-num-batched-tokens", "256")
FORMATS = ("int8", "int4", "int4-symmetric")


def config(server):
    with server.http() as http:
        return http.get("/v1/tandem/config").json()


def answers(server):
    client = server.openai()

    def ask(i):
        done = client.completions.create(model="golden", prompt=f"request {i}: " + "the fox and the hen " * (1 + i % 4), max_tokens=20 + i, temperature=0,
                                         logprobs=1, extra_body={"service_tier": "flex", "ignore_eos": True})
        return done.choices[0].text, done.choices[0].logprobs.token_logprobs

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        return list(pool.map(ask, range(16)))


@pytest.mark.parametrize("quantization", FORMATS)
def test_a_quantised_server_answers_replays_and_agrees_on_two_tiers(binary, start_server, tmp_path, quantization):
    record = tmp_path / "run.jsonl"
    plain = start_server(MODEL, *FLAGS, "--quantization", quantization, "--record-out", record)
    shown = config(plain)
    assert (shown["quantization"], shown["dtype"], shown["kv_cache_dtype"]) == (quantization, "bfloat16", "bfloat16")
    expected = answers(plain)
    assert answers(plain) == expected  # from the prefix cache
    plain.stop_cleanly()
    done = subprocess.run([str(binary), "replay", str(record), "--model", str(MODEL)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "identical" in done.stdout, done.stdout + done.stderr

    two_tiers = start_server(MODEL, *FLAGS, "--quantization", quantization, "--emulate-accelerator", "auto", "--num-kv-blocks", "8",
                             "--device-memory", "64MiB", "--host-memory", "64MiB", "--offload-below", "100", "--onload-above", "100")
    assert answers(two_tiers) == expected
    assert two_tiers.metric("tandem_hops_total") > 16


def test_formats_differ_and_none_is_the_default(start_server):
    texts = {}
    weights = {}
    for quantization in ("none", *FORMATS):
        server = start_server(MODEL, *FLAGS, "--dtype", "bfloat16", "--quantization", quantization)
        texts[quantization] = answers(server)
        weights[quantization] = config(server)["memory_plan_bytes"]["weights"]
        server.stop_cleanly()
    assert len({repr(text) for text in texts.values()}) == 4
    assert weights["none"] > weights["int8"] > weights["int4"] > weights["int4-symmetric"]
    assert answers(start_server(MODEL, *FLAGS, "--dtype", "bfloat16")) == texts["none"]


def test_a_story_stays_a_story(start_server, stories_model):
    golden = json.loads((stories_model / "golden.json").read_text())["cases"][0]
    server = start_server(stories_model / "hf", "--served-model-name", "stories", "--quantization", "int8")
    reply = server.openai().completions.create(model="stories", prompt=golden["prompt"], max_tokens=40, temperature=0)
    assert (golden["prompt"] + reply.choices[0].text).startswith("Once upon a time, there was a little girl named Lily.")


def test_bench_loss_prints_what_each_format_costs(binary, stories_model, tmp_path):
    out = tmp_path / "loss.json"
    done = subprocess.run([str(binary), "bench", "loss", str(stories_model / "hf"), "--tokens", "8192", "--json", str(out)],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = {row["format"]: row for row in json.loads(out.read_text())["rows"]}
    assert list(rows) == ["bfloat16", *FORMATS] and rows["int4"]["tokens"] > 8000
    over = {name: row["perplexity_over_first"] - 1 for name, row in rows.items()}
    assert rows["int4"]["config"]["quantization"] == "int4" and rows["int4"]["config"]["max_num_seqs"] > 0
    assert json.loads(out.read_text())["flags"]["tokens"] == "8192"
    assert over["bfloat16"] == 0 and abs(over["int8"]) <= 0.002
    assert 0 < over["int4"] < over["int4-symmetric"] < 0.15  # rows of 64 elements: a hard case


def test_model_info_and_check_know_the_formats(binary):
    info = json.loads(subprocess.run([str(binary), "model", "info", str(MODEL), "--json"], capture_output=True, text=True, timeout=60).stdout)
    needs = {name: need["weight_bytes"] for name, need in info["needs"].items()}
    assert needs["float32"] > needs["bfloat16"] > needs["int8"] > needs["int4"] > needs["int4-symmetric"]
    done = subprocess.run([str(binary), "serve", str(MODEL), "--check", "--quantization", "int4"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and re.search("weights in int4", done.stdout + done.stderr), done.stdout + done.stderr


# One by one: what a test asks at the same time shares steps with other requests.
def answers_alone(server):
    client = server.openai()
    done = [client.completions.create(model="golden", prompt=f"request {i}: " + "the fox and the hen " * (1 + i % 4), max_tokens=20 + i, temperature=0,
                                      logprobs=1, extra_body={"service_tier": "flex", "ignore_eos": True}) for i in range(16)]
    return [(each.choices[0].text, each.choices[0].logprobs.token_logprobs) for each in done]


@pytest.mark.parametrize("quantization", ("int8", "int4"))
def test_int8_activations_answer_the_same_in_any_company(binary, start_server, tmp_path, quantization):
    record = tmp_path / "run.jsonl"
    flags = ("--served-model-name", "golden", "--max-num-seqs", "32", "--quantization", quantization)
    server = start_server(MODEL, *flags, "--activations", "int8", "--record-out", record)
    shown = config(server)
    assert (shown["activations"], shown["weights"]) == ("int8", f"{quantization}, int8 activations")
    expected = answers_alone(server)
    assert answers(server) == expected
    server.stop_cleanly()
    done = subprocess.run([str(binary), "replay", str(record), "--model", str(MODEL)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "identical" in done.stdout, done.stdout + done.stderr

    small_chunks = start_server(MODEL, *flags, "--activations", "int8", "--max-num-batched-tokens", "32", "--no-enable-prefix-caching", "--threads", "1")
    assert answers(small_chunks) == expected
    small_chunks.stop_cleanly()
    two_tiers = start_server(MODEL, *flags, "--activations", "int8", "--emulate-accelerator", "auto", "--num-kv-blocks", "8", "--device-memory", "64MiB",
                             "--host-memory", "64MiB", "--offload-below", "100", "--onload-above", "100")
    assert answers(two_tiers) == expected
    assert answers(start_server(MODEL, *flags)) != expected  # the option does something


def test_int8_activations_without_quantised_weights_are_refused(binary):
    done = subprocess.run([str(binary), "serve", str(MODEL), "--check", "--activations", "int8"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "add --quantization int8" in done.stderr, done.stdout + done.stderr
