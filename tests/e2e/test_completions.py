"""/v1/completions: text in, text out, every sampling parameter that changes it."""
import math
import threading

import pytest

pytestmark = pytest.mark.core
LILY = "Once upon a time"


def complete(server, **body):
    body = {"model": server.model_name(), "prompt": "Hello", "max_tokens": 24, "temperature": 0} | body
    extra = {k: body.pop(k) for k in ("ignore_eos", "min_tokens", "top_k", "min_p", "repetition_penalty", "stop_token_ids") if k in body}
    return server.openai().completions.create(**body, extra_body=extra or None)


def test_a_completion_has_every_field_of_the_openai_reply(server):
    reply = complete(server, ignore_eos=True)
    assert reply.object == "text_completion"
    assert reply.id.startswith("cmpl-")
    assert reply.model == "golden"
    assert reply.created > 1_600_000_000
    choice = reply.choices[0]
    assert (choice.index, choice.finish_reason) == (0, "length")
    assert reply.usage.completion_tokens == 24
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 24


def test_max_tokens_defaults_to_16(server):
    reply = server.openai().completions.create(model="golden", prompt="Hello", extra_body={"ignore_eos": True})
    assert reply.usage.completion_tokens == 16


def test_a_prompt_may_be_text_or_token_ids_or_a_list_of_either(server):
    with server.http() as http:
        ids = http.post("/tokenize", json={"model": "golden", "prompt": "Hello, world"}).json()["tokens"]
    as_text = complete(server, prompt="Hello, world").choices[0].text
    assert complete(server, prompt=ids).choices[0].text == as_text
    both = complete(server, prompt=["Hello, world", "Hello"])
    assert [c.index for c in both.choices] == [0, 1]
    assert both.choices[0].text == as_text
    assert complete(server, prompt=[ids, ids]).choices[1].text == as_text


def test_greedy_text_is_the_same_every_time(server):
    texts = {complete(server, max_tokens=64).choices[0].text for _ in range(3)}
    assert len(texts) == 1


def test_an_alias_names_the_same_model(server):
    assert complete(server, model="golden-alias").choices[0].text == complete(server).choices[0].text


def test_the_same_seed_gives_the_same_text_and_another_seed_another(server):
    first = complete(server, temperature=1.0, seed=7, ignore_eos=True).choices[0].text
    assert complete(server, temperature=1.0, seed=7, ignore_eos=True).choices[0].text == first
    assert complete(server, temperature=1.0, seed=8, ignore_eos=True).choices[0].text != first


def test_a_seeded_text_does_not_depend_on_traffic(server):
    def seeded():
        return complete(server, temperature=0.9, seed=11, max_tokens=100, ignore_eos=True, prompt="The server").choices[0].text

    alone = seeded()
    done = threading.Event()

    def traffic(number):
        while not done.is_set():
            complete(server, temperature=1.0, seed=number, prompt="x " * (10 + 17 * number), max_tokens=60, ignore_eos=True)

    threads = [threading.Thread(target=traffic, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    try:
        among_others = [seeded() for _ in range(5)]
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert set(among_others) == {alone}


def test_n_choices_use_seed_plus_index(server):
    reply = complete(server, temperature=1.0, seed=20, n=3, ignore_eos=True)
    assert sorted(c.index for c in reply.choices) == [0, 1, 2]
    assert reply.usage.completion_tokens == 3 * 24
    for choice in reply.choices:
        alone = complete(server, temperature=1.0, seed=20 + choice.index, ignore_eos=True)
        assert choice.text == alone.choices[0].text


def test_top_k_of_one_is_greedy(server):
    greedy = complete(server, ignore_eos=True).choices[0].text
    assert complete(server, temperature=1.5, top_k=1, seed=3, ignore_eos=True).choices[0].text == greedy
    for top_p in (0, 1e-6):
        assert complete(server, temperature=1.5, top_p=top_p, seed=3, ignore_eos=True).choices[0].text == greedy
    assert complete(server, temperature=1.5, min_p=1.0, seed=3, ignore_eos=True).choices[0].text == greedy


def test_logit_bias_forces_and_forbids(server):
    with server.http() as http:
        token = http.post("/tokenize", json={"model": "golden", "prompt": "Q"}).json()["tokens"][0]
    assert complete(server, logit_bias={str(token): 100}, max_tokens=5).choices[0].text == "QQQQQ"
    greedy = complete(server, logprobs=1, max_tokens=1).choices[0]
    with server.http() as http:
        first = http.post("/tokenize", json={"model": "golden", "prompt": greedy.text}).json()["tokens"]
    if len(first) == 1:
        assert complete(server, logit_bias={str(first[0]): -100}, max_tokens=1).choices[0].text != greedy.text


def test_penalties_change_what_repeats(server):
    with server.http() as http:
        token = http.post("/tokenize", json={"model": "golden", "prompt": "Q"}).json()["tokens"][0]
    bias = {str(token): 20}
    assert complete(server, logit_bias=bias, max_tokens=20).choices[0].text == "Q" * 20
    # Twice a frequency penalty of 2 for each Q before: after some ten of them another token wins.
    assert complete(server, logit_bias=bias, frequency_penalty=2.0, max_tokens=20).choices[0].text != "Q" * 20


def test_min_tokens_holds_stop_tokens_back(server):
    with server.http() as http:
        token = http.post("/tokenize", json={"model": "golden", "prompt": "Q"}).json()["tokens"][0]
    bias = {str(token): 100}
    stopped = complete(server, logit_bias=bias, stop_token_ids=[token])
    assert (stopped.choices[0].text, stopped.choices[0].finish_reason) == ("", "stop")
    held = complete(server, logit_bias=bias, stop_token_ids=[token], min_tokens=4, max_tokens=10)
    assert held.choices[0].finish_reason == "stop"
    assert held.usage.completion_tokens >= 4


def test_a_stop_string_ends_the_text_before_it(stories):
    whole = complete(stories, prompt=LILY, max_tokens=60).choices[0].text
    assert "Lily. She" in whole
    cut = complete(stories, prompt=LILY, max_tokens=60, stop=["y. Sh", "never there"]).choices[0]
    assert cut.finish_reason == "stop"
    assert cut.text == whole[:whole.index("y. Sh")]


def test_log_probabilities_of_a_completion(server):
    choice = complete(server, logprobs=3, max_tokens=6, ignore_eos=True).choices[0]
    logprobs = choice.logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == len(logprobs.text_offset) == 6
    for chosen, top in zip(logprobs.token_logprobs, logprobs.top_logprobs):
        assert chosen <= 0
        assert 1 <= len(top) <= 4
        assert chosen == pytest.approx(max(top.values()), abs=1e-5)  # greedy takes the most likely
        assert sum(math.exp(v) for v in top.values()) <= 1 + 1e-4


@pytest.mark.parametrize("token, text, offsets", [(373, "", [0, 0, 0]), (107, "\ufffd" * 3, [0, 1, 2])], ids=["special", "stray-byte"])
def test_offsets_point_into_the_text(server, token, text, offsets):
    choice = complete(server, logprobs=0, max_tokens=3, ignore_eos=True, logit_bias={str(token): 100}).choices[0]
    assert (choice.text, choice.logprobs.text_offset) == (text, offsets)


def test_the_second_call_takes_its_prompt_from_the_prefix_cache(server):
    prompt = [(7 * i) % 256 for i in range(320)]
    first = complete(server, prompt=prompt)
    second = complete(server, prompt=prompt)
    assert second.choices[0].text == first.choices[0].text
    assert second.usage.prompt_tokens_details.cached_tokens >= 256
    assert second.usage.prompt_tokens_details.cached_tokens < 320
    other = complete(server, prompt=[1] + prompt[1:])
    assert not other.usage.prompt_tokens_details or not other.usage.prompt_tokens_details.cached_tokens


def test_generation_ends_where_the_context_is_full(server):
    reply = complete(server, prompt=[65] * 500, max_tokens=12, ignore_eos=True)
    assert reply.usage.completion_tokens == 12
    assert reply.choices[0].finish_reason == "length"
