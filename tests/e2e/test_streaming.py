"""Streams: framing byte for byte, chunks as the OpenAI clients expect them, usage, cancel, several clients at once."""
import asyncio
import json

import pytest
from server import sse_events, until

pytestmark = pytest.mark.core
HELLO = [{"role": "user", "content": "Hello"}]


def stream(server, path, **body):
    """The parsed chunks of a stream; checks status, headers and the closing [DONE]."""
    with server.http() as http, http.stream("POST", path, json={"model": "golden", "temperature": 0, "stream": True} | body) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].split(";")[0] == "text/event-stream"
        events = list(sse_events(response))
    assert events[-1] == "[DONE]" and "[DONE]" not in events[:-1]
    return [json.loads(event) for event in events[:-1]]


def test_a_chat_stream_is_role_then_tokens_then_finish(server):
    chunks = stream(server, "/v1/chat/completions", messages=HELLO, max_tokens=12, ignore_eos=True)
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"}
    assert len({c["id"] for c in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    finishes = [c["choices"][0]["finish_reason"] for c in chunks]
    assert finishes[-1] == "length" and set(finishes[:-1]) == {None}
    assert all("usage" not in c or c["usage"] is None for c in chunks)
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)
    whole = server.openai().chat.completions.create(model="golden", messages=HELLO, max_tokens=12, temperature=0,
                                                    extra_body={"ignore_eos": True})
    assert text == whole.choices[0].message.content


def test_a_completion_stream_adds_up_to_the_whole_text(server):
    chunks = stream(server, "/v1/completions", prompt="Hello", max_tokens=200, ignore_eos=True)
    whole = server.openai().completions.create(model="golden", prompt="Hello", max_tokens=200, temperature=0,
                                               extra_body={"ignore_eos": True})
    assert "".join(c["choices"][0]["text"] for c in chunks) == whole.choices[0].text


def test_usage_comes_last_with_empty_choices_when_asked(server):
    chunks = stream(server, "/v1/completions", prompt="Hello", max_tokens=9, ignore_eos=True, stream_options={"include_usage": True})
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 9
    assert all(c.get("usage") is None for c in chunks[:-1])


def test_continuous_usage_counts_every_token(server):
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = stream(server, "/v1/completions", prompt="Hello", max_tokens=9, ignore_eos=True, stream_options=options)
    counts = [c["usage"]["completion_tokens"] for c in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 9
    assert {1, 5, 9} <= set(counts)  # one chunk per token, or at least its count
    assert "prompt_tokens_details" not in chunks[0]["usage"]  # not known before the end
    assert "cached_tokens" in chunks[-1]["usage"]["prompt_tokens_details"]


def test_every_choice_of_a_stream_ends_once(server):
    chunks = stream(server, "/v1/completions", prompt="Hello", max_tokens=8, n=3, temperature=1.0, seed=1, ignore_eos=True)
    ends = [c["choices"][0]["index"] for c in chunks if c["choices"] and c["choices"][0]["finish_reason"]]
    assert sorted(ends) == [0, 1, 2]


def test_a_stop_string_split_over_tokens_never_shows(stories):
    name = stories.model_name()
    chunks = stream(stories, "/v1/completions", model=name, prompt="Once upon a time", max_tokens=60, stop="y. Sh")
    text = "".join(c["choices"][0]["text"] for c in chunks)
    assert text.endswith("named Lil")
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_the_openai_client_reads_a_stream(server):
    pieces = list(server.openai().chat.completions.create(model="golden", messages=HELLO, max_tokens=10, stream=True,
                                                          stream_options={"include_usage": True}))
    assert pieces[-1].usage.completion_tokens <= 10
    assert pieces[-2].choices[0].finish_reason in ("stop", "length")


def test_a_client_that_leaves_cancels_its_request(long_server):
    client = long_server.openai()
    pieces = client.completions.create(model="long", prompt="Hello", max_tokens=16000, stream=True, extra_body={"ignore_eos": True})
    next(iter(pieces))
    assert long_server.metric("vllm:num_requests_running") >= 1
    pieces.close()
    assert until(long_server.is_idle), "the request still runs after its client left"


def test_a_client_that_leaves_without_a_stream_cancels_too(long_server):
    import httpx

    with pytest.raises(httpx.ReadTimeout):
        long_server.post("/v1/completions", timeout=0.3,
                         json={"model": "long", "prompt": "Hello", "max_tokens": 16000, "ignore_eos": True, "n": 4})
    assert until(long_server.is_idle), "the request still runs after its client left"


def test_several_clients_at_once_get_their_own_text(server):
    prompts = ["request " * (1 + 3 * i) for i in range(12)]
    client = server.openai()

    def alone(prompt):
        return client.completions.create(model="golden", prompt=prompt, max_tokens=40, temperature=0).choices[0].text

    expected = [alone(prompt) for prompt in prompts]

    async def together():
        async with server.async_openai() as many:
            async def one(prompt):
                text = ""
                async for chunk in await many.completions.create(model="golden", prompt=prompt, max_tokens=40, temperature=0, stream=True):
                    text += chunk.choices[0].text
                return text

            return await asyncio.gather(*[one(prompt) for prompt in prompts])

    assert asyncio.run(together()) == expected
