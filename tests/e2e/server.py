"""A `tandem serve` process under test: started on a free port, asked over HTTP, stopped by SIGTERM."""
import itertools
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import time

import httpx
import openai

START_SECONDS = 120  # a sanitizer build on a busy machine
STOP_SECONDS = 60

METRIC = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


# Each process of the suite (pytest-xdist numbers them gw0, gw1, ...) has ports of its own, below the kernel's range for outgoing
# connections, so that a port stays free until the server binds it.
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_ports = itertools.cycle(range(15000 + 2000 * (_worker % 8), 17000 + 2000 * (_worker % 8)))


def free_port():
    for port in itertools.islice(_ports, 2000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")


def until(condition, seconds=30.0, every=0.02):
    """Waits until condition() is true and returns its value; what it last returned when time runs out."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(every)


def parse_metrics(text):
    """[(name, labels, value)] of a Prometheus text page; a malformed line fails."""
    series = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = METRIC.match(line)
        assert match, f"not a Prometheus line: {line!r}"
        series.append((match[1], dict(LABEL.findall(match[2] or "")), float(match[3])))
    return series


class Server:
    running = []  # for the failure report

    def __init__(self, binary, model, log, flags=(), env=None):
        self.log = pathlib.Path(log)
        self.port = free_port()
        named = [] if model is None else [str(model)]  # None: the model that comes with Tandem
        self.command = [str(binary), "serve", *named, "--host", "127.0.0.1", "--port", str(self.port), *map(str, flags)]
        self.key = None
        if "--api-key" in flags:
            self.key = flags[list(flags).index("--api-key") + 1]
        self.certificate = None  # what clients trust, where the server speaks TLS
        if "--ssl-certfile" in flags:
            self.certificate = str(flags[list(flags).index("--ssl-certfile") + 1])
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log_file = open(self.log, "wb")
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log_file, stderr=subprocess.STDOUT,
                                        env=os.environ | (env or {}))
        Server.running.append(self)

    url = property(lambda self: f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.port}")

    @property
    def verify(self):
        """The certificates that httpx trusts. Without TLS there are none: a client that reads the machine's costs 40 ms of CPU time."""
        return ssl.create_default_context(cafile=self.certificate) if self.certificate else False

    def log_tail(self, lines=40):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def wait_ready(self):
        end = time.monotonic() + START_SECONDS
        with httpx.Client(base_url=self.url, timeout=5, verify=self.verify) as http:
            while time.monotonic() < end:
                code = self.process.poll()
                assert code is None, f"the server ended with code {code} before it was ready:\n{self.log_tail()}"
                try:
                    if http.get("/health").status_code == 200:
                        return self
                except httpx.TransportError:
                    pass
                time.sleep(0.01)
        raise AssertionError(f"not ready after {START_SECONDS} s:\n{self.log_tail()}")

    def stop(self):
        """SIGTERM, wait, return the exit code. Killed (and reported as -9) when it does not end."""
        if self in Server.running:
            Server.running.remove(self)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = -9
        self.log_file.close()
        return code

    def stop_cleanly(self):
        code = self.stop()
        assert code == 0, f"exit code {code} after SIGTERM:\n{self.log_tail()}"

    def http(self, **options):
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return httpx.Client(base_url=self.url, timeout=120, verify=self.verify, headers=headers | options.pop("headers", {}), **options)

    def get(self, path, **options):
        return httpx.get(self.url + path, verify=self.verify, **options)

    def post(self, path, **options):
        return httpx.post(self.url + path, verify=self.verify, **options)

    def openai(self, key=None, **options):
        options["http_client"] = openai.DefaultHttpxClient(verify=self.verify)
        return openai.OpenAI(base_url=self.url + "/v1", api_key=key or self.key or "none", max_retries=0, timeout=120, **options)

    def async_openai(self, **options):
        options["http_client"] = openai.DefaultAsyncHttpxClient(verify=self.verify)
        return openai.AsyncOpenAI(base_url=self.url + "/v1", api_key=self.key or "none", max_retries=0, timeout=120, **options)

    def model_name(self):
        return self.openai().models.list().data[0].id

    def metrics(self):
        with self.http() as http:
            response = http.get("/metrics")
        assert response.status_code == 200
        return parse_metrics(response.text)

    def metric(self, name, **labels):
        """Sum over the series of this name that carry these labels; fails when there is none."""
        found = [value for series, have, value in self.metrics() if series == name and labels.items() <= have.items()]
        assert found, f"no series {name} {labels}"
        return sum(found)

    def is_idle(self):
        """Nothing runs, nothing waits, no block is held by a sequence."""
        values = {name: value for name, _, value in self.metrics()}
        return (values["vllm:num_requests_running"] == 0 and values["vllm:num_requests_waiting"] == 0
                and values["vllm:kv_cache_usage_perc"] == 0)

    def resident_bytes(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")


def sse_events(response):
    """The `data:` payloads of a streaming httpx response; checks the framing byte for byte, skips comments."""
    buffer = b""
    for piece in response.iter_raw():
        buffer += piece
        while b"\n\n" in buffer:
            event, buffer = buffer.split(b"\n\n", 1)
            if event.startswith(b":"):
                continue
            assert event.startswith(b"data: ") and b"\n" not in event, f"not one data line: {event!r}"
            yield event[len(b"data: "):].decode()
    assert buffer == b"", f"left over after the last event: {buffer!r}"
