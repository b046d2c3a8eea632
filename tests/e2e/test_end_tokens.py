"""Which tokens end an answer: those of config.json, of generation_config.json and of the tokenizer."""
import json
import shutil
import subprocess

import pytest
from conftest import GOLDENS, launch

GOLDEN = GOLDENS / "llama-gqa-rope3-f32"  # its three files name <|endoftext|>, 372
TURN_END = 374  # <|im_end|>


def changed(folder, file, **fields):
    content = json.loads((folder / file).read_text())
    content.update(fields)
    (folder / file).write_text(json.dumps(content))


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(GOLDEN, tmp_path / "model")
    return tmp_path / "model"


def forced(server, token):
    body = {"model": "m", "prompt": "a", "max_tokens": 5, "temperature": 0, "logit_bias": {str(token): 100}}
    return server.post("/v1/completions", json=body, timeout=60).raise_for_status().json()


def test_the_tokenizers_end_token_ends_answers_too(binary, folder, tmp_path):
    changed(folder, "tokenizer_config.json", eos_token="<|im_end|>")
    record = tmp_path / "record"
    server = launch(binary, "end-tokens", folder, "--served-model-name", "m", "--record-out", record)
    try:
        assert server.get("/v1/tandem/config").json()["end_tokens"] == [372, TURN_END]
        for token in (372, TURN_END):
            answer = forced(server, token)
            assert answer["choices"][0]["finish_reason"] == "stop", token
            assert answer["usage"]["completion_tokens"] == 0
        assert forced(server, 40)["choices"][0]["finish_reason"] == "length"
    finally:
        server.stop_cleanly()
    # A replay reads no tokenizer; the record says what ended answers.
    replay = subprocess.run([binary, "replay", record, "--model", folder], capture_output=True, text=True, timeout=120)
    assert replay.returncode == 0 and "identical" in replay.stdout, replay.stdout + replay.stderr


def test_values_that_cannot_be_used_are_warnings(binary, folder):
    changed(folder, "config.json", eos_token_id=[372, 384])
    changed(folder, "generation_config.json", top_p=0.0, max_new_tokens=0, bos_token_id=-1)
    changed(folder, "tokenizer_config.json", eos_token="<|later|>", added_tokens_decoder={"384": {"content": "<|later|>", "special": True}})
    server = launch(binary, "unusable-values", folder, "--served-model-name", "m")
    try:
        assert server.get("/v1/tandem/config").json()["end_tokens"] == [372]
        assert forced(server, 40)["choices"][0]["text"]
    finally:
        server.stop_cleanly()
    log = server.log.read_text()
    for words in ("eos_token_id: holds 384", "top_p: is 0.0", "max_new_tokens: is 0", "bos_token_id: is -1", "the tokenizer: the end token has the id 384"):
        assert words in log, words
    assert "million parameters" in log
