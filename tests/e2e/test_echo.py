"""echo and prompt_logprobs of /v1/completions: the prompt's own log-probabilities, against transformers' logits."""
import array
import json
import math

import pytest

from conftest import GOLDENS

pytestmark = pytest.mark.core
FOLDER = GOLDENS / "llama-gqa-rope3-f32"
FAMILIES = sorted(p.parent.name for p in GOLDENS.glob("*/golden.json"))
PROMPTS = json.loads((FOLDER / "golden.json").read_text())["prompts"]
LONG = PROMPTS[-1]["token_ids"][:280]


def complete(server, **body):
    extra = {k: body.pop(k) for k in ("ignore_eos", "prompt_logprobs") if k in body} | {"ignore_eos": True}
    return server.openai().completions.create(**{"model": server.model_name(), "max_tokens": 4, "temperature": 0} | body, extra_body=extra)


def golden_logprobs(folder):
    """(prompt, position p, logprob of the token at p + 1) from transformers' logits after p."""
    logits = array.array("f", (folder / "logits_float32.f32").read_bytes())
    row = 0
    for prompt in json.loads((folder / "golden.json").read_text())["prompts"]:
        for position in prompt["logit_positions"]:
            own, row = logits[row * 384:(row + 1) * 384], row + 1
            if position + 1 < len(prompt["token_ids"]):
                yield prompt, position, own[prompt["token_ids"][position + 1]] - math.log(sum(map(math.exp, own)))


@pytest.mark.parametrize("name", FAMILIES)
def test_prompt_logprobs_agree_with_transformers(start_server, name):
    """Every family and every RoPE scaling, through the whole server; where a length is named, with just that served."""
    servers, compared = {}, 0
    for prompt, position, expected in golden_logprobs(GOLDENS / name):
        served = prompt.get("max_model_len")
        if served not in servers:
            flags = ("--max-model-len", str(served)) if served else ()
            servers[served] = start_server(GOLDENS / name, "--dtype", "float32", "--served-model-name", "golden", *flags)
        ids = prompt["token_ids"][:served - 1] if served else prompt["token_ids"]
        if position + 1 < len(ids):
            scores = complete(servers[served], prompt=ids, echo=True, logprobs=0, max_tokens=0).choices[0].logprobs.token_logprobs
            assert scores[position + 1] == pytest.approx(expected, abs=2e-3)
            compared += 1
    assert compared > 8


def test_echo_puts_the_prompt_before_the_answer(server):
    for prompt in ("The server reads", "Größe", [46, 53, 60], "x" * 100):
        plain = complete(server, prompt=prompt, n=2)
        echoed = complete(server, prompt=prompt, n=2, echo=True)
        with server.http() as http:
            text = prompt if isinstance(prompt, str) else http.post("/detokenize", json={"model": "golden", "tokens": prompt}).json()["prompt"]
        assert [c.text for c in echoed.choices] == [text + c.text for c in plain.choices]
        assert echoed.usage.completion_tokens == plain.usage.completion_tokens
        assert all(c.logprobs is None for c in echoed.choices)
    both = complete(server, prompt=["The server", "A token"], echo=True)
    assert [c.text[:7] for c in both.choices] == ["The ser", "A token"]


def test_logprobs_of_an_echo_are_the_prompts_and_then_the_answers(server):
    prompt = "The server's request waits"
    plain = complete(server, prompt=prompt, logprobs=3).choices[0].logprobs
    choice = complete(server, prompt=prompt, logprobs=3, echo=True).choices[0]
    own = choice.logprobs
    count = len(own.tokens) - 4
    assert own.tokens[count:] == plain.tokens
    assert own.token_logprobs[count:] == plain.token_logprobs
    assert own.top_logprobs[count:] == plain.top_logprobs
    assert "".join(own.tokens[:count]) == prompt
    assert own.token_logprobs[0] is None and own.top_logprobs[0] is None
    assert all(value <= 0 for value in own.token_logprobs[1:])
    assert own.text_offset[0] == 0 and own.text_offset[count] == len(prompt)
    for token, offset in zip(own.tokens[:count], own.text_offset):
        assert choice.text[offset:].startswith(token)
    for token, value, top in zip(own.tokens[1:count], own.token_logprobs[1:], own.top_logprobs[1:]):
        assert 3 <= len(top) <= 4 and top[token] == value
        assert value <= max(top.values())


def test_a_stream_echoes_the_same(server):
    for logprobs in (None, 0, 2):
        whole = complete(server, prompt="A token comes back up", echo=True, logprobs=logprobs, n=2)
        texts, values, tokens = ["", ""], [[], []], [[], []]
        for chunk in complete(server, prompt="A token comes back up", echo=True, logprobs=logprobs, n=2, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
                if logprobs is not None:
                    values[choice.index] += choice.logprobs.token_logprobs
                    tokens[choice.index] += choice.logprobs.tokens
        assert texts == [c.text for c in whole.choices]
        if logprobs is not None:
            assert values == [c.logprobs.token_logprobs for c in whole.choices]
            assert tokens == [c.logprobs.tokens for c in whole.choices]


@pytest.mark.parametrize("stream", [False, True])
def test_with_no_tokens_to_make_only_the_prompt_is_scored(server, stream):
    """What evaluation harnesses ask for."""
    full = complete(server, prompt=LONG, echo=True, logprobs=1).choices[0].logprobs
    reply = complete(server, prompt=LONG, echo=True, logprobs=1, max_tokens=0, stream=stream)
    if stream:
        chunks = [chunk.choices[0] for chunk in reply]
        assert chunks[-1].finish_reason == "length"
        own = chunks[0].logprobs
    else:
        assert reply.usage.completion_tokens == 0
        assert reply.choices[0].finish_reason == "length"
        own = reply.choices[0].logprobs
    assert own.token_logprobs == full.token_logprobs[:len(LONG)]
    assert len(own.tokens) == len(LONG)


def test_prompt_logprobs_have_vllms_shape(server):
    reply = complete(server, prompt=LONG, prompt_logprobs=2)
    echoed = complete(server, prompt=LONG, echo=True, logprobs=0).choices[0]
    scores = reply.choices[0].model_extra["prompt_logprobs"]
    assert len(scores) == len(LONG) and scores[0] is None
    assert reply.choices[0].logprobs is None
    for token, entry, value in zip(LONG[1:], scores[1:], echoed.logprobs.token_logprobs[1:]):
        own = entry[str(token)]
        assert own["logprob"] == value
        assert next(iter(entry)) == str(token)
        assert 2 <= len(entry) <= 3
        assert {1, 2} <= {one["rank"] for one in entry.values()}
        assert isinstance(own["decoded_token"], str)
        better = [one for one in entry.values() if one["rank"] < own["rank"]]
        assert all(one["logprob"] >= own["logprob"] for one in better)
    assert complete(server, prompt=[5], prompt_logprobs=0).choices[0].model_extra["prompt_logprobs"] == [None]


def test_scores_depend_neither_on_the_cache_nor_on_chunks_nor_on_company(server, start_server):
    expected = complete(server, prompt=LONG, echo=True, logprobs=1).choices[0].logprobs
    warm = complete(server, prompt=LONG)
    assert complete(server, prompt=LONG).usage.prompt_tokens_details.cached_tokens > 0
    again = complete(server, prompt=LONG, echo=True, logprobs=1)
    assert again.usage.prompt_tokens_details.cached_tokens == 0
    assert again.choices[0].logprobs == expected
    assert again.choices[0].text.endswith(warm.choices[0].text)
    small = start_server(FOLDER, "--served-model-name", "golden", "--max-num-batched-tokens", "24", "--max-num-seqs", "2")
    assert complete(small, prompt=[LONG, LONG[:50]], echo=True, logprobs=1).choices[0].logprobs == expected


def test_values_that_make_no_sense_are_refused(server):
    bad = [
        ("prompt_logprobs", {"prompt_logprobs": 21}), ("prompt_logprobs", {"prompt_logprobs": -1}),
        ("prompt_logprobs", {"prompt_logprobs": "5"}), ("prompt_logprobs", {"prompt_logprobs": True}),
        ("prompt_logprobs", {"prompt_logprobs": 1e30}), ("prompt_logprobs", {"prompt_logprobs": 1, "stream": True}),
        ("echo", {"echo": "true"}), ("echo", {"echo": [True]}), ("logprobs", {"echo": True, "logprobs": 21}),
        ("max_tokens", {"max_tokens": 0}), ("min_tokens", {"echo": True, "max_tokens": 0, "min_tokens": 1}),
    ]
    with server.http() as http:
        for param, fields in bad:
            reply = http.post("/v1/completions", json={"model": "golden", "prompt": "Hello"} | fields)
            assert reply.status_code == 400, fields
            assert reply.json()["error"]["param"] == param
        for fields in ({"echo": True}, {"prompt_logprobs": 1}):
            reply = http.post("/v1/chat/completions", json={"model": "golden", "messages": [{"role": "user", "content": "a"}]} | fields)
            assert reply.status_code == 400
        many = [LONG] * 200
        reply = http.post("/v1/completions", json={"model": "golden", "prompt": many, "prompt_logprobs": 20})
        assert reply.status_code == 400 and "at most" in reply.json()["error"]["message"]
    assert math.isfinite(complete(server, prompt="still there", echo=True, logprobs=0).choices[0].logprobs.token_logprobs[1])
