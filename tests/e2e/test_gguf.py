"""Models in GGUF: the same answers as from the folders that they are made from, and one clear error for what is wrong."""
import json
import subprocess
import sys

import pytest
from conftest import GOLDENS, ROOT
from test_golden_text import continue_as_transformers_does

sys.path.insert(0, str(ROOT / "tools" / "gguf"))

import make_gguf  # noqa: E402

LLAMA = GOLDENS / "llama-gqa-rope3-f32"


def test_stories_are_told_from_gguf_as_from_the_folder(start_server, stories_model):
    golden = json.loads((stories_model / "golden.json").read_text())
    server = start_server(stories_model / "stories260K-f32.gguf", "--served-model-name", "stories")
    client = server.openai()
    for case in golden["cases"]:
        if case["prompt"]:
            reply = client.completions.create(model="stories", prompt=case["prompt"], max_tokens=golden["max_new_tokens"], temperature=0)
            assert reply.usage.prompt_tokens == len(case["prompt_token_ids"])
            assert case["prompt"] + reply.choices[0].text == case["text"]


@pytest.mark.parametrize("folder, kind, tensors_per_part", [("llama-gqa-rope3-f32", "F32", 0), ("mistral-window-bf16", "BF16", 6), ("qwen2-bf16", "BF16", 0),
                                                            ("qwen2-tied-f16", "F16", 0), ("qwen3-bf16", "BF16", 0)])
def test_random_models_continue_as_transformers_does(start_server, tmp_path, folder, kind, tensors_per_part):
    make_gguf.convert(GOLDENS / folder, tmp_path / "m.gguf", kind, tensors_per_part)
    path = min(tmp_path.glob("m*.gguf"))
    assert (len(list(tmp_path.glob("m-*.gguf"))) > 1) == (tensors_per_part > 0)
    continue_as_transformers_does(start_server(path, "--dtype", "float32", "--served-model-name", "golden"), folder)


def answers(server):
    client = server.openai()
    model = client.models.list().data[0].id
    replies = [client.completions.create(model=model, prompt=[7, 11 + i, 19, 23], max_tokens=24, temperature=0, logprobs=1, extra_body={"ignore_eos": True}) for i in range(3)]
    return [(reply.choices[0].text, reply.choices[0].logprobs.token_logprobs) for reply in replies]


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"])
def test_quantised_weights_answer_as_what_they_stand_for(start_server, wide_model, tmp_path, kind):
    """The folder has as fp32 what the reference package reads from the quantised tensors."""
    make_gguf.convert(wide_model, tmp_path / "m.gguf", kind, dequantised=tmp_path / "folder")
    for dtype in ("float32", "bfloat16"):
        wanted = answers(start_server(tmp_path / "folder", "--dtype", dtype))
        assert answers(start_server(tmp_path / "m.gguf", "--dtype", dtype, "--quantization", "none")) == wanted


def prompt_logprobs(server):
    client = server.openai()
    reply = client.completions.create(model=client.models.list().data[0].id, prompt=list(range(7, 500, 13)), max_tokens=0, echo=True, logprobs=1)
    return reply.choices[0].logprobs.token_logprobs[1:]


@pytest.mark.parametrize("kind, formats", [("Q8_0", "gguf int8"), ("Q4_0", "gguf int4-symmetric"), ("Q4_1", "gguf int4"), ("Q4_K", "gguf int4"), ("Q6_K", "gguf int8")])
def test_quantised_weights_stay_quantised(start_server, wide_model, tmp_path, kind, formats):
    """Beside the same weights as fp32: what differs is the rounding of activations to bfloat16, of Q4_K's scales to fp16, and of Q6_K's weights to int8."""
    make_gguf.convert(wide_model, tmp_path / "m.gguf", kind, dequantised=tmp_path / "folder")
    wanted = prompt_logprobs(start_server(tmp_path / "folder", "--dtype", "float32"))
    server = start_server(tmp_path / "m.gguf")
    config = server.get("/v1/tandem/config").json()
    assert config["weights"] == formats and config["quantization"] == "auto"
    told = prompt_logprobs(server)
    assert max(abs(a - b) for a, b in zip(wanted, told)) < (0.2 if kind == "Q6_K" else 0.05)
    bf16 = prompt_logprobs(start_server(tmp_path / "m.gguf", "--quantization", "none"))
    assert told != bf16


def make_mixed(folder, out, dequantised=None):
    """As Q4_K_M mixes, with numbers beside."""
    types = {"attn_v": "Q6_K", "ffn_down": "Q6_K", "output": "F16", "token_embd": "Q8_0"}
    make_gguf.convert(folder, out, "Q4_K", dequantised=dequantised, types=types)


def test_a_mixed_file_keeps_each_tensors_kind(start_server, wide_model, tmp_path):
    make_mixed(wide_model, tmp_path / "m.gguf", tmp_path / "folder")
    wanted = prompt_logprobs(start_server(tmp_path / "folder", "--dtype", "float32"))
    server = start_server(tmp_path / "m.gguf")
    config = server.get("/v1/tandem/config").json()
    assert config["weights"] == "gguf int4+bfloat16+int8" and config["quantization"] == "auto"
    assert "('output.weight' ...) become bfloat16" in server.log.read_text()
    none = start_server(tmp_path / "m.gguf", "--quantization", "none")
    assert none.get("/v1/tandem/config").json()["weights"] == "bfloat16"
    told, numbers = prompt_logprobs(server), prompt_logprobs(none)
    assert told != numbers
    assert max(abs(a - b) for a, b in zip(numbers, told)) < 0.2  # Q6_K is rounded to int8, everything else to bfloat16
    assert max(abs(a - b) for a, b in zip(wanted, told)) < 0.2


def test_float32_keeps_what_a_mixed_file_says(start_server, wide_model, tmp_path):
    make_mixed(wide_model, tmp_path / "m.gguf", tmp_path / "folder")
    server = start_server(tmp_path / "m.gguf", "--dtype", "float32")
    config = server.get("/v1/tandem/config").json()
    assert config["weights"] == "float32" and config["quantization"] == "none"
    assert answers(server) == answers(start_server(tmp_path / "folder", "--dtype", "float32"))


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_heads_that_are_padded_cost_little(binary, start_server, tmp_path, kind):
    """Heads of 48: padding cuts the groups of the output projection, which are rounded anew, to int8."""
    folder = tmp_path / "model"
    subprocess.run([binary, "model", "make", folder, "--preset", "tiny", "--layers", "2", "--hidden", "256", "--intermediate", "512", "--heads", "4", "--kv-heads", "2",
                    "--head-dim", "48", "--vocab", "512"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    make_gguf.convert(folder, tmp_path / "m.gguf", kind, dequantised=tmp_path / "dequantised")
    wanted = prompt_logprobs(start_server(tmp_path / "dequantised", "--dtype", "float32"))
    told = prompt_logprobs(start_server(tmp_path / "m.gguf"))
    assert max(abs(a - b) for a, b in zip(wanted, told)) < 0.1


def test_bench_measures_the_weights_that_serve_uses(binary, wide_model, tmp_path):
    make_mixed(wide_model, tmp_path / "m.gguf")
    out = tmp_path / "loss.json"
    done = subprocess.run([binary, "bench", "loss", tmp_path / "m.gguf", "--tokens", "512", "--context", "64", "--json", out], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())["rows"]
    assert [row["format"] for row in rows] == ["bfloat16", "gguf int4+bfloat16+int8", "int8", "int4", "int4-symmetric"]
    assert abs(rows[1]["perplexity_over_first"] - 1) < 0.02 and rows[1]["weight_bytes"] < rows[0]["weight_bytes"]
    done = subprocess.run([binary, "bench", "model", tmp_path / "m.gguf", "--prompt", "8", "--output", "4", "--batch", "1", "--passes", "1", "--quantization", "auto"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_mixed_file_says_what_it_takes(binary, wide_model, tmp_path):
    make_gguf.convert(wide_model, tmp_path / "m.gguf", "Q8_0")
    code, text = info(binary, tmp_path / "m.gguf", "--json")
    assert code == 0
    needs = json.loads(text)["needs"]
    assert list(needs)[0] == "gguf int8"
    assert needs["gguf int8"]["weight_bytes"] < needs["int8"]["weight_bytes"] < needs["bfloat16"]["weight_bytes"]


def test_what_does_not_go_together_is_refused(binary, wide_model, tmp_path):
    make_gguf.convert(wide_model, tmp_path / "m.gguf", "Q4_0")
    done = subprocess.run([binary, "serve", tmp_path / "m.gguf", "--check", "--quantization", "int9"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "choose auto, none, int8, int4 or int4-symmetric" in done.stdout + done.stderr


def info(binary, path, *flags):
    done = subprocess.run([binary, "model", "info", path, *flags], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_info_describes_a_file(binary, tmp_path):
    make_gguf.convert(LLAMA, tmp_path / "m.gguf", "F32")
    code, text = info(binary, tmp_path / "m.gguf", "--json")
    assert code == 0
    told = json.loads(text)
    code, text = info(binary, LLAMA, "--json")
    folder = json.loads(text)
    for key in ("architecture", "parameters", "layers", "hidden", "heads", "kv_heads", "head_dim", "vocabulary", "max_positions", "rope_theta", "tied_embeddings",
                "chat_template"):
        assert told[key] == folder[key], key
    for dtype, need in folder["needs"].items():  # but for the tokens, of memory that is free now
        assert told["needs"][dtype]["weight_bytes"] == need["weight_bytes"], dtype
    assert set(folder["eos_token_ids"]) < set(told["eos_token_ids"])  # and the control token <|im_end|>
    assert told["tokenizer"] == "byte-level BPE (gpt2, pre-tokenizer gpt-2)"
    assert told["files"] == [{"name": "m.gguf", "bytes": (tmp_path / "m.gguf").stat().st_size}]


def test_chats_use_the_template_in_the_file(start_server, tmp_path):
    make_gguf.convert(LLAMA, tmp_path / "m.gguf", "F32")
    messages = [{"role": "user", "content": "The server reads"}]
    texts = []
    for path in (tmp_path / "m.gguf", LLAMA):
        client = start_server(path, "--served-model-name", "golden", "--dtype", "float32").openai()
        reply = client.chat.completions.create(model="golden", messages=messages, max_tokens=16, temperature=0, extra_body={"ignore_eos": True})
        texts.append((reply.choices[0].message.content, reply.usage.prompt_tokens))
    assert texts[0] == texts[1]


def refusal(binary, path):
    done = subprocess.run([binary, "serve", path, "--check"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    lines = (done.stdout + done.stderr).strip().splitlines()
    assert "Traceback" not in lines[-1]
    return lines[-1]


def test_broken_files_are_refused_with_one_line(binary, tmp_path):
    whole = tmp_path / "m.gguf"
    make_gguf.convert(LLAMA, whole, "F32")
    data = whole.read_bytes()
    broken = tmp_path / "broken.gguf"
    for size in (3, 20, 4000, len(data) // 2, len(data) - 1):
        broken.write_bytes(data[:size])
        assert "broken.gguf" in refusal(binary, broken), size
    broken.write_bytes(data.replace(b"general.architecture", b"general.architekture"))
    assert "'general.architecture' is missing" in refusal(binary, broken)
    broken.write_bytes(data.replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_xp.weight"))
    assert "tensor 'blk.1.ffn_xp.weight' has no place" in refusal(binary, broken)
    broken.write_bytes(data.replace(b"\x05\0\0\0\0\0\0\0gpt-2", b"\x05\0\0\0\0\0\0\0gpt-9"))
    assert "'gpt-9', a pre-tokenizer that is not supported" in refusal(binary, broken)
    assert "holds GGUF files and no config.json" in refusal(binary, tmp_path)
