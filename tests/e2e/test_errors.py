"""Bad input over HTTP: one clear error each, and a server that serves on."""
import gzip
import json
import socket

import openai
import pytest

pytestmark = pytest.mark.core
GOOD = {"model": "golden", "prompt": "Hello", "max_tokens": 2}
CHAT = {"model": "golden", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}


@pytest.fixture(autouse=True)
def still_serves(server):
    yield
    with server.http() as http:
        assert http.post("/v1/completions", json=GOOD).status_code == 200


def refuse(server, path, status, content=None, body=None, headers=None):
    """Sends it, checks status and the error body, and returns the error object."""
    with server.http() as http:
        if content is None:
            content = json.dumps(body)
        response = http.post(path, content=content, headers={"Content-Type": "application/json"} | (headers or {}))
    assert response.status_code in (status if isinstance(status, tuple) else (status,)), response.text
    assert response.headers["content-type"].split(";")[0] == "application/json"
    error = response.json()["error"]
    assert {"message", "type", "param", "code"} <= set(error), error
    assert isinstance(error["message"], str) and len(error["message"]) < 2000
    return error


@pytest.mark.parametrize("content", [
    b"", b"{", b'{"model": }', b"[]", b"3", b'"x"', b"null", b'{"model": "golden", "prompt": "x"} trailing',
    b'{"model": "golden", "prompt": "\xff\xfe"}', b'{"model": "golden", "prompt": "\\ud800"}', b"[" * 200_000,
    b'{"a":' * 200_000, b'{"model": "golden", "prompt": "x", "temperature": 1e999}', b'{"model": "golden", "prompt": "x", "temperature": NaN}',
], ids=["empty", "cut", "no-value", "array", "number", "string", "null", "trailing", "not-utf8", "lone-surrogate", "deep-array",
        "deep-object", "infinite", "nan"])
def test_a_body_that_is_no_json_object_is_400(server, content):
    refuse(server, "/v1/completions", (400, 422), content=content)


@pytest.mark.parametrize("field, value", [
    ("prompt", 3), ("prompt", {}), ("prompt", []), ("prompt", [1.5]), ("prompt", [["a"]]), ("prompt", [1, "a"]), ("prompt", [-1]),
    ("prompt", [384]), ("prompt", [10**30]), ("max_tokens", "many"), ("max_tokens", -1), ("max_tokens", 1.5), ("temperature", "hot"),
    ("temperature", -1), ("top_p", 2), ("top_p", -0.1), ("top_k", "x"), ("min_p", 2), ("n", 0), ("n", "two"), ("n", 10**9), ("stop", 5),
    ("stop", [1]), ("stop", ["x"] * 1000), ("seed", "x"), ("logprobs", -1), ("logprobs", 10**6), ("logit_bias", [1]),
    ("logit_bias", {"x": 1}), ("logit_bias", {"5": 1000}), ("logit_bias", {"99999": 1}), ("presence_penalty", 9),
    ("repetition_penalty", 0), ("repetition_penalty", 1e-40), ("stream", "yes"), ("stream_options", 3), ("model", 3), ("min_tokens", -1), ("ignore_eos", 3),
    ("stop_token_ids", ["a"]), ("service_tier", "gold"), ("service_tier", 7), ("min_tokens", 10**6),
])
def test_a_wrong_value_is_refused_by_name(server, field, value):
    error = refuse(server, "/v1/completions", (400, 422), body=GOOD | {field: value})
    assert field in error["message"] or error["param"] == field


@pytest.mark.parametrize("messages", [None, 3, "x", {}, [], [3], [{}], [{"role": "user"}], [{"role": 3, "content": "x"}],
                                      [{"role": "user", "content": 3}], [{"role": "user", "content": [{"type": "image_url"}]}],
                                      [{"role": "user", "content": [{"type": "text", "text": 3}]}]])
def test_wrong_messages_are_refused(server, messages):
    error = refuse(server, "/v1/chat/completions", (400, 422), body=CHAT | {"messages": messages})
    assert ("messages[0]" if messages and isinstance(messages, list) else "messages") in error["message"]


def test_missing_fields_are_refused_by_name(server):
    assert "prompt" in refuse(server, "/v1/completions", (400, 422), body={"model": "golden"})["message"]
    assert "messages" in refuse(server, "/v1/chat/completions", (400, 422), body={"model": "golden"})["message"]


def test_an_unknown_model_is_404(server):
    error = refuse(server, "/v1/completions", 404, body=GOOD | {"model": "no-such-model"})
    assert error["code"] == "model_not_found"
    assert "no-such-model" in error["message"]
    with pytest.raises(openai.NotFoundError):
        server.openai().chat.completions.create(**CHAT | {"model": "no-such-model"})


def test_a_prompt_over_the_context_is_400_with_the_numbers(server):
    error = refuse(server, "/v1/completions", 400, body=GOOD | {"prompt": [65] * 600})
    assert "512" in error["message"] and "600" in error["message"]
    with pytest.raises(openai.BadRequestError):
        server.openai().chat.completions.create(**CHAT | {"messages": [{"role": "user", "content": "Q" * 5000}]})


def test_prompt_and_max_tokens_over_the_context_is_an_error_or_cut(server):
    with server.http() as http:
        response = http.post("/v1/completions", json=GOOD | {"prompt": [65] * 500, "max_tokens": 100, "ignore_eos": True})
    if response.status_code == 200:
        assert response.json()["usage"]["total_tokens"] <= 512
    else:
        assert response.status_code == 400 and "512" in response.json()["error"]["message"]


def raw(server, request, wait=True):
    """Sends bytes and returns the first line of what comes back (empty when the server just closes)."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        try:
            connection.sendall(request)
            return connection.recv(4096).split(b"\r\n")[0] if wait else b""
        except (ConnectionResetError, BrokenPipeError):
            return b""


def test_a_body_too_large_is_413_before_it_is_read(server):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    assert b" 413 " in raw(server, head % (1 << 40))


def test_endless_chunks_are_cut(server):
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    line = raw(server, b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + piece * 2048)
    assert line == b"" or b" 413 " in line


def test_a_header_too_large_is_refused(server):
    line = raw(server, b"GET /health HTTP/1.1\r\nHost: x\r\nX-Big: " + b"a" * 1_000_000 + b"\r\n\r\n")
    assert line == b"" or b" 431 " in line or b" 400 " in line


@pytest.mark.parametrize("junk", [b"\x16\x03\x01\x02\x00\x01", b"GARBAGE\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x00" * 5000,
                                  b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n"])
def test_junk_is_refused_or_cut(server, junk):
    # Some of it is a legal beginning: then the server waits for more and our leaving must not hurt it.
    complete_head = b"\r\n\r\n" in junk
    line = raw(server, junk, wait=complete_head)
    assert line == b"" or b" 4" in line or b" 505 " in line


def test_unknown_paths_and_methods(server):
    with server.http() as http:
        assert http.get("/no/such/path").status_code == 404
        assert http.get("/v1/completions").status_code == 405
        assert http.delete("/v1/models").status_code == 405
        assert http.get("/v1/models/golden").status_code == 200
        assert http.get("/v1/models/other").status_code == 404


def test_expect_100_continue_is_answered(server):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 60\r\nExpect: 100-continue\r\n\r\n"
    assert b" 100 " in raw(server, head)


def test_an_encoded_body_is_415_with_the_cure(server):
    error = refuse(server, "/v1/completions", 415, content=gzip.compress(b'{"prompt": "x"}'), headers={"Content-Encoding": "gzip"})
    assert "Content-Encoding" in error["message"] and "uncompressed" in error["message"]
    assert error["code"] == "unsupported_content_encoding"


def test_what_is_not_built_is_refused_by_name(server):
    for field, value in (("modalities", ["text", "audio"]), ("function_call", {"name": "look"})):
        error = refuse(server, "/v1/chat/completions", 400, body=CHAT | {field: value})
        assert error["code"] == "unsupported" and error["param"] == field


def test_an_empty_line_before_a_request_is_ignored(server):
    assert b" 200 " in raw(server, b"\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n")
