"""/v1/chat/completions: templates, roles, choices, log probabilities."""
import openai
import pytest

pytestmark = pytest.mark.core
HELLO = [{"role": "user", "content": "Hello"}]


def chat(server, messages=None, **body):
    body = {"model": "golden", "messages": messages or HELLO, "max_tokens": 20, "temperature": 0} | body
    return server.openai().chat.completions.create(**body)


def test_a_chat_completion_has_every_field_of_the_openai_reply(server):
    reply = chat(server)
    assert reply.object == "chat.completion"
    assert reply.id.startswith("chatcmpl-")
    assert reply.model == "golden"
    choice = reply.choices[0]
    assert choice.message.role == "assistant"
    assert isinstance(choice.message.content, str)
    assert choice.finish_reason in ("stop", "length")
    assert reply.usage.prompt_tokens > 0


def test_the_template_of_the_folder_makes_the_prompt(server):
    rendered = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    as_text = server.openai().completions.create(model="golden", prompt=rendered, max_tokens=20, temperature=0)
    reply = chat(server)
    assert reply.usage.prompt_tokens == as_text.usage.prompt_tokens
    assert reply.choices[0].message.content == as_text.choices[0].text


def test_content_may_be_a_list_of_text_parts(server):
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}]
    whole = chat(server, [{"role": "user", "content": "Hel\nlo"}]), chat(server)
    assert chat(server, parts).choices[0].message.content in [w.choices[0].message.content for w in whole]


def test_an_answer_that_refused_may_be_a_part_of_the_conversation(server):
    def after(answer):
        return chat(server, [*HELLO, {"role": "assistant"} | answer, *HELLO]).choices[0].message.content

    wanted = after({"content": "I cannot"})
    assert after({"content": None, "refusal": "I cannot"}) == wanted
    assert after({"content": [{"type": "refusal", "refusal": "I cannot"}]}) == wanted
    with pytest.raises(openai.BadRequestError, match="'content' is missing"):
        after({"content": None, "refusal": None})
    with pytest.raises(openai.APIStatusError, match="refusal"):
        chat(server, [{"role": "user", "content": [{"type": "refusal", "refusal": "I cannot"}]}])


def test_both_names_of_the_token_limit_count(server):
    assert chat(server, max_tokens=5, extra_body={"ignore_eos": True}).usage.completion_tokens == 5
    client = server.openai()
    reply = client.chat.completions.create(model="golden", messages=HELLO, max_completion_tokens=6, temperature=0,
                                           extra_body={"ignore_eos": True})
    assert reply.usage.completion_tokens == 6


def test_without_a_limit_a_chat_may_fill_the_context(server):
    client = server.openai()
    reply = client.chat.completions.create(model="golden", messages=HELLO, temperature=0, extra_body={"ignore_eos": True})
    assert reply.usage.total_tokens == 512
    assert reply.choices[0].finish_reason == "length"


def test_log_probabilities_of_a_chat(server):
    choice = chat(server, logprobs=True, top_logprobs=4, max_tokens=5, extra_body={"ignore_eos": True}).choices[0]
    assert len(choice.logprobs.content) == 5
    for token in choice.logprobs.content:
        assert len(token.top_logprobs) == 4
        values = [t.logprob for t in token.top_logprobs]
        assert values == sorted(values, reverse=True)
        assert token.logprob == pytest.approx(values[0], abs=1e-5)
        assert token.bytes is not None


def test_n_chat_choices(server):
    reply = chat(server, n=4, temperature=1.0, seed=5, extra_body={"ignore_eos": True})
    assert sorted(c.index for c in reply.choices) == [0, 1, 2, 3]
    assert len({c.message.content for c in reply.choices}) == 4


def test_the_reply_to_a_request_with_a_service_tier_names_the_one_that_was_used(server):
    assert chat(server, service_tier="default").service_tier == "default"
    assert chat(server, service_tier="auto").service_tier == "default"
    assert chat(server, service_tier="flex").service_tier == "flex"
    assert chat(server, service_tier="priority", extra_body={"priority": 2}).service_tier == "priority"


def test_unknown_fields_are_ignored(server):
    assert chat(server, extra_body={"a_field_of_next_year": {"x": 1}, "user": "someone"}).choices


def test_tools_reach_the_template_and_the_answer_is_text(server):
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
    assert chat(server, tools=tools).choices[0].message.content is not None
