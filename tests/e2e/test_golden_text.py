"""The golden models over HTTP: the trained little model word for word, the random ones token for token."""
import json
import pathlib

import pytest

GOLDENS = pathlib.Path(__file__).resolve().parent.parent / "goldens"
FOLDERS = sorted(p.parent.name for p in GOLDENS.glob("*/golden.json"))
FIRST_SPECIAL = 372  # special tokens are not part of the text, so a comparison by text ends before them


def test_stories_are_told_word_for_word(stories, stories_model):
    golden = json.loads((stories_model / "golden.json").read_text())
    client = stories.openai()
    for case in golden["cases"]:
        reply = client.completions.create(model="stories", prompt=case["prompt_token_ids"], max_tokens=golden["max_new_tokens"], temperature=0)
        with stories.http() as http:
            expected = http.post("/detokenize", json={"model": "stories", "tokens": case["generated_token_ids"]}).json()["prompt"]
        assert reply.choices[0].text.lstrip(" ") == expected.lstrip(" ")
        assert reply.choices[0].finish_reason == case["finish_reason"]
        assert reply.usage.completion_tokens - len(case["generated_token_ids"]) in (0, 1)


def test_stories_from_text_prompts(stories, stories_model):
    golden = json.loads((stories_model / "golden.json").read_text())
    for case in golden["cases"]:
        if case["prompt"]:
            reply = stories.openai().completions.create(model="stories", prompt=case["prompt"], max_tokens=golden["max_new_tokens"], temperature=0)
            assert reply.usage.prompt_tokens == len(case["prompt_token_ids"])
            assert case["prompt"] + reply.choices[0].text == case["text"]


@pytest.mark.parametrize("flags", [("--dtype", "bfloat16"), ("--max-num-batched-tokens", "16"), ("--threads", "1")], ids=" ".join)
def test_stories_stay_the_same_under(start_server, stories_model, flags):
    golden = json.loads((stories_model / "golden.json").read_text())
    server = start_server(stories_model / "hf", "--served-model-name", "stories", *flags)
    case = golden["cases"][0]
    reply = server.openai().completions.create(model="stories", prompt=case["prompt"], max_tokens=golden["max_new_tokens"], temperature=0)
    assert case["prompt"] + reply.choices[0].text == case["text"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_random_models_continue_as_transformers_does(start_server, folder):
    continue_as_transformers_does(start_server(GOLDENS / folder, "--dtype", "float32", "--served-model-name", "golden"), folder)


def continue_as_transformers_does(server, folder):
    golden = json.loads((GOLDENS / folder / "golden.json").read_text())
    client = server.openai()
    compared = 0
    with server.http() as http:
        for case in golden["encodings"]:
            if case["text"]:
                reply = http.post("/tokenize", json={"model": "golden", "prompt": case["text"], "add_special_tokens": False}).json()
                assert reply["tokens"] == case["token_ids"]
        for prompt in golden["prompts"]:
            greedy = prompt["greedy_token_ids"]
            plain = next((i for i, token in enumerate(greedy) if token >= FIRST_SPECIAL), len(greedy))
            if plain == 0:
                continue
            reply = client.completions.create(model="golden", prompt=prompt["token_ids"], max_tokens=plain, temperature=0,
                                              extra_body={"ignore_eos": True, "repetition_penalty": 1.0})
            expected = http.post("/detokenize", json={"model": "golden", "tokens": greedy[:plain]}).json()["prompt"]
            # A random prompt may end inside a character: whether its bytes show at the text's beginning is not the question here.
            assert reply.choices[0].text.lstrip("\ufffd") == expected.lstrip("\ufffd"), prompt["name"]
            compared += plain
        chat = golden["chat"]
        tokens = http.post("/tokenize", json={"model": "golden", "messages": chat["messages"], "add_generation_prompt": True}).json()["tokens"]
        assert http.post("/detokenize", json={"model": "golden", "tokens": tokens}).json()["prompt"] == chat["rendered"]
    assert compared >= 32


def test_generation_config_gives_the_defaults(start_server):
    """qwen2-bf16 asks for repetition_penalty 1.05, temperature 0.7, top_k 20 and top_p 0.9, and names two end tokens."""
    server = start_server(GOLDENS / "qwen2-bf16", "--served-model-name", "golden")
    prompt = json.loads((GOLDENS / "qwen2-bf16" / "golden.json").read_text())["prompts"][0]["token_ids"]

    def text(**body):
        extra = {"ignore_eos": True} | {k: body.pop(k) for k in ("repetition_penalty", "top_k") if k in body}
        return server.openai().completions.create(model="golden", prompt=prompt, max_tokens=24, extra_body=extra, **body).choices[0].text

    assert text(temperature=0) == text(temperature=0, repetition_penalty=1.05)
    assert text(temperature=0) != text(temperature=0, repetition_penalty=1.0)
    assert text(seed=3) == text(seed=3, temperature=0.7, top_p=0.9, top_k=20, repetition_penalty=1.05)
    assert text(seed=3) != text(seed=3, temperature=0.7, top_p=1.0, top_k=0, repetition_penalty=1.05)
    with server.http() as http:
        for stop in (374, 372):
            reply = http.post("/v1/completions", json={"model": "golden", "prompt": prompt, "max_tokens": 5, "logit_bias": {str(stop): 100}})
            assert reply.json()["choices"][0]["finish_reason"] == "stop"


def test_preemption_changes_no_text(start_server, long_model):
    """Too few blocks for all: some are preempted and recomputed, and nobody notices."""
    roomy = start_server(long_model, "--served-model-name", "long")
    prompts = [[(11 * i + 5 * k) % 250 for i in range(200)] for k in range(6)]

    def ask(server, together):
        import asyncio

        async def one(client, prompt):
            reply = await client.completions.create(model="long", prompt=prompt, max_tokens=400, temperature=0, extra_body={"ignore_eos": True})
            return reply.choices[0].text

        async def everyone():
            async with server.async_openai() as client:
                if together:
                    return await asyncio.gather(*[one(client, prompt) for prompt in prompts])
                return [await one(client, prompt) for prompt in prompts]

        return asyncio.run(everyone())

    alone = ask(roomy, together=False)
    assert ask(roomy, together=True) == alone
    # Six sequences of 600 tokens need 19 blocks of 32 each.
    tight = start_server(long_model, "--served-model-name", "long", "--max-model-len", "1024", "--block-size", "32", "--num-kv-blocks", "60")
    assert ask(tight, together=True) == alone
    assert tight.metric("vllm:num_preemptions_total") > 0
