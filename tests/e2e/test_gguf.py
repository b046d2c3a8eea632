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


@pytest.fixture(scope="module")
def wide_model(binary, tmp_path_factory):
    """Rows of whole super-blocks; made once."""
    folder = tmp_path_factory.mktemp("wide") / "model"
    subprocess.run([binary, "model", "make", folder, "--preset", "tiny", "--layers", "2", "--hidden", "256", "--intermediate", "512", "--heads", "4", "--kv-heads", "2",
                    "--head-dim", "64", "--vocab", "512"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder


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
        assert answers(start_server(tmp_path / "m.gguf", "--dtype", dtype)) == wanted


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
