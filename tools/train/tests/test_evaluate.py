"""The evaluation: what it counts, and how it asks a server."""
import http.server
import json
import threading

import evaluate
import pytest
import tasks

NAMES = ["add_2", "spell"]


def test_right_answers_are_counted_by_task(capsys):
    def answer(examples):  # every third sum is wrong
        return [example.answer if index % 3 or example.task != "add_2" else "7 + 7 = 7" for index, example in enumerate(examples)]

    rows = evaluate.evaluate(answer, NAMES, count=30, seed=1, show=1)
    assert rows["add_2"] == {"right": 20, "asked": 30, "accuracy": 20 / 30}
    assert rows["spell"]["accuracy"] == 1.0
    assert "7 + 7 = 7" in capsys.readouterr().out


@pytest.fixture
def server():
    """Answers each known prompt rightly, and keeps what it was asked."""
    answers = {str(example.messages): example.answer for name in NAMES for example in tasks.held_out(name, 10)}

    class Handler(http.server.BaseHTTPRequestHandler):
        asked = []

        def reply(self, body):
            text = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_GET(self):
            self.reply({"data": [{"id": "tiny"}]})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.asked.append((self.path, body))
            self.reply({"choices": [{"message": {"content": answers[str(body["messages"])]}}]})

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_address[1]}/", Handler.asked
        listening.shutdown()


def test_a_server_is_asked_greedily_and_its_answers_keep_their_order(server):
    base, asked = server
    rows = evaluate.evaluate(evaluate.server_answerer(base, parallel=4), NAMES, count=10, seed=1, show=0)
    assert [row["right"] for row in rows.values()] == [10, 10]
    assert {path for path, _ in asked} == {"/v1/chat/completions"}
    assert all(body["model"] == "tiny" and body["temperature"] == 0 and body["max_tokens"] == evaluate.ANSWER_TOKENS for _, body in asked)


def test_no_right_answer_is_longer_than_is_asked_for():
    # A made-up word is at most as many tokens as letters; a listed word is one.
    for example in [example for name in tasks.TASKS for example in tasks.held_out(name, 50)]:
        pieces = tasks.base.count_pieces(example.answer)
        assert min(len(example.answer), 2 * pieces) < evaluate.ANSWER_TOKENS, example.answer
