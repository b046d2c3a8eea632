"""`tandem chat`: a conversation in the terminal, with a real server and with one that sends what no terminal should get."""
import http.server
import json
import os
import pty
import select
import signal
import subprocess
import threading
import time

import pytest
from mock_hub import MockServer


def chat(binary, url, lines, *flags, env=None):
    done = subprocess.run([str(binary), "chat", "--url", url, *map(str, flags)], input=lines, capture_output=True, timeout=120,
                          env=os.environ | {"NO_PROXY": "127.0.0.1"} | (env or {}))
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_a_real_server_answers(binary, server):
    code, out, err = chat(binary, server.url, b"Hello\nAnd again\n", "--max-tokens", 5, "--temperature", 0, "--class", "best_effort")
    assert code == 0, err
    assert out.strip()
    summaries = [line for line in err.splitlines() if line.startswith("[first token after")]
    assert len(summaries) == 2 and all("best_effort" in line for line in summaries), err
    code, _, err = chat(binary, server.url, b"Hello\n", "golden-alias", "--max-tokens", 2)
    assert code == 0 and "golden-alias" in err


def test_what_goes_wrong_is_said_in_a_line(binary, server):
    code, _, err = chat(binary, "http://127.0.0.1:1", b"Hello\n")
    assert code == 1 and "tandem serve" in err and len(err.strip().splitlines()) == 1
    code, _, err = chat(binary, server.url, b"Hello\n", "other-model")
    assert code == 1 and "no model 'other-model'" in err
    code, _, err = chat(binary, "localhost:8000", b"Hello\n")
    assert code == 2 and "http://" in err


class Mock(http.server.BaseHTTPRequestHandler):
    """Streams `pieces`; one that is a number is a pause of so many seconds."""
    protocol_version = "HTTP/1.1"
    pieces = []
    bodies = []
    keys = []  # of the requests for models
    error = None  # a status and a body instead of an answer
    hold = 0  # seconds that a connection stays open after the end of an answer
    slow = 0  # seconds before the models are named

    def do_GET(self):
        Mock.keys.append(self.headers.get("Authorization"))
        time.sleep(Mock.slow)
        self.reply(json.dumps({"data": [{"id": "mock\x1b[2J"}]}).encode(), "application/json")

    def do_POST(self):
        Mock.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(Mock.error[0] if Mock.error else 200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            if Mock.error:
                self.wfile.write(Mock.error[1])
                return
            for piece in Mock.pieces:
                if isinstance(piece, (int, float)):
                    time.sleep(piece)
                    continue
                event = {"choices": [{"delta": {"content": piece}}]}
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()
            self.wfile.write(b"data: [DONE]\n\n")
            self.wfile.flush()
            time.sleep(Mock.hold)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def reply(self, body, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def mock():
    Mock.bodies, Mock.keys, Mock.error, Mock.hold, Mock.slow = [], [], None, 0, 0
    server = MockServer(("127.0.0.1", 0), Mock)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_no_control_character_reaches_the_terminal(binary, mock):
    Mock.pieces = ["a\x1b[31mb", "\x1b", "]0;title\x07", "c\bd\x7f", "\u009b2J", "\u202ee\n\tf é 世"]
    code, out, err = chat(binary, mock, b"Hello\n")
    assert code == 0, err
    text = out + err
    assert not [c for c in text if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) <= 159 or c == "\u202e"], repr(text)
    assert "[31mb" in out and "\tf é 世" in out


def test_errors_are_shown_without_commands_and_at_once(binary, mock):
    message = json.dumps({"error": {"message": "no\u009b2J\u202e way\x1b]0;x\x07"}}, ensure_ascii=False)
    Mock.error = (500, message.encode())
    code, out, err = chat(binary, mock, b"Hello\n")
    assert code == 1 and "status 500: no?2J? way?]0;x?" in err
    Mock.error = (500, b"x" * (8 << 20))
    code, _, err = chat(binary, mock, b"Hello\n")
    assert code == 1 and "status 500: xxx" in err and len(err) < 1000


def test_an_answer_ends_with_its_last_event(binary, mock):
    Mock.pieces, Mock.hold = ["Yes."], 20
    began = time.monotonic()
    code, out, err = chat(binary, mock, b"Hello\nAgain\n")
    assert code == 0 and out == "Yes.\nYes.\n", err
    assert time.monotonic() - began < 10


def test_this_machine_is_asked_without_a_proxy_and_keys_are_kept_from_others(binary, mock):
    Mock.pieces = ["Yes."]
    proxy = {"http_proxy": "http://127.0.0.1:1", "NO_PROXY": "", "no_proxy": "", "TANDEM_API_KEY": ""}
    code, out, err = chat(binary, mock, b"Hello\n", env=proxy | {"OPENAI_API_KEY": " sk-mine\r\n"})
    assert code == 0 and out == "Yes.\n" and Mock.keys == ["Bearer sk-mine"], err
    code, _, err = chat(binary, "http://192.0.2.1:1", b"Hello\n", env=proxy | {"OPENAI_API_KEY": "sk-mine"})
    assert code == 1 and "OPENAI_API_KEY is not sent without encryption" in err and "sk-mine" not in err
    code, _, err = chat(binary, mock, b"Hello\n", env={"TANDEM_API_KEY": "a\r\nX-Evil: 1"})
    assert code == 2 and "holds a blank" in err


def test_a_full_disk_ends_it(binary, mock):
    Mock.pieces = ["Yes."]
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(binary), "chat", "--url", mock], input=b"Hello\nAgain\n", stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1 and b"cannot be written" in done.stderr and len(Mock.bodies) == 1


@pytest.mark.parametrize("when", ["models", "answer"])
def test_an_interrupt_without_a_terminal_ends_it(binary, mock, when):
    Mock.pieces, Mock.slow = ["Once", 20], 20 if when == "models" else 0
    process = subprocess.Popen([str(binary), "chat", "--url", mock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(b"Hello\nAgain\n")
    process.stdin.flush()
    seen = Mock.keys if when == "models" else Mock.bodies
    end = time.monotonic() + 20
    while not seen and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=15)
    assert process.returncode == 130 and b"start a server" not in err, err


class Terminal:
    def __init__(self, command):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                        env=os.environ | {"NO_PROXY": "127.0.0.1"}, preexec_fn=None)
        os.close(slave)
        self.seen = ""

    def until(self, text, seconds=30):
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, f"{text!r} did not come: {self.seen!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 4096).decode(errors="replace")
        before, _, self.seen = self.seen.partition(text)
        return before

    def send(self, data):
        os.write(self.master, data)


def test_interrupts_stop_an_answer_and_the_end_of_input_ends(binary, mock):
    Mock.pieces = ["Once upon", 30, " a time"]
    terminal = Terminal([str(binary), "chat", "--url", mock])
    terminal.until("> ")
    terminal.send(b"Tell me\n")
    terminal.until("Once upon")
    terminal.process.send_signal(signal.SIGINT)
    terminal.until("[stopped; first token after")
    terminal.until("> ")
    Mock.pieces = ["Yes."]
    terminal.send(b"Still there?\n")
    terminal.until("Yes.")
    terminal.until("> ")
    terminal.process.send_signal(signal.SIGINT)
    terminal.until("(Ctrl-D ends)")
    terminal.send(b"/new\n")
    terminal.until("(a new conversation)")
    terminal.send(b"Who are you?\n")
    terminal.until("Yes.")
    terminal.until("> ")
    terminal.send(b"\x04")
    assert terminal.process.wait(30) == 0
    os.close(terminal.master)
    said = [[(message["role"], message["content"]) for message in body["messages"]] for body in Mock.bodies]
    assert said == [[("user", "Tell me")], [("user", "Tell me"), ("assistant", "Once upon"), ("user", "Still there?")], [("user", "Who are you?")]]
