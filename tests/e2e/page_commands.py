"""The commands of a Markdown page, and a run of them in the order of the page, as a reader would type them.

A block of shell is ```sh, of Python ```python. The line above it may say how it is run:
  (nothing)                    run to its end, which must be a success
  <!-- ci: serve -->           a server; it replaces the server before and runs until the end of the page
  <!-- ci: check (REASON) -->  not run, because of REASON; its syntax, its files and the flags of `tandem serve` are checked
A block ```text output or ```json output holds what the block before must print: its lines in order, where `...` matches any text and
each number any other number. Without such a block nothing printed may be an error of the server.
"""
import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import httpx
from server import START_SECONDS, STOP_SECONDS, free_port

FENCE = re.compile(r"^(?:<!-- ci: (?P<how>\w+)(?: \((?P<reason>[^)]+)\))? -->\n)?```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
ADDRESS = "127.0.0.1:8000"


@dataclasses.dataclass
class Block:
    kind: str  # sh or python
    how: str  # run, serve or check
    text: str
    line: int
    output: str | None = None  # expected output


def blocks_of(page):
    """The blocks of a page's text; a block that cannot be run or compared is an AssertionError."""
    found = []
    for match in FENCE.finditer(page):
        kind, line = match["kind"], page.count("\n", 0, match.start()) + 1
        if kind in ("text output", "json output"):
            assert found and found[-1].how == "run", f"line {line}: an output without a command that is run before it"
            found[-1].output = match["text"]
            continue
        assert kind in ("sh", "python"), f"line {line}: a block is sh, python, 'text output' or 'json output', not '{kind}'"
        assert match["how"] in (None, "serve", "check"), f"line {line}: 'ci: {match['how']}' is not known"
        assert match["how"] != "check" or match["reason"], f"line {line}: 'ci: check' needs its reason in brackets"
        found.append(Block(kind, match["how"] or "run", match["text"], line))
    fences = len(re.findall(r"^```", page, re.MULTILINE))
    assert fences == 2 * len(FENCE.findall(page)), "a fence without its end"
    return found


def missing_lines(wanted, printed):
    """The pieces of `wanted` that `printed` lacks, or has in another order. All numbers are alike; spaces inside JSON do not count."""
    def alike(text):
        return re.sub(r"[ \t]*([:,{}\[\]])[ \t]*", r"\1", re.sub(r"\d+(?:[.,]\d+)*", "0", text))

    rest, missing = alike(printed), []
    for line in wanted.splitlines():
        for piece in filter(None, (piece.strip() for piece in alike(line).split("..."))):
            before, found, after = rest.partition(piece)
            if found:
                rest = after
            else:
                missing.append(piece)
    return missing


class PageRun:
    """Runs blocks in `folder`, where `tandem` is the given binary and port 8000 of the page a free port."""

    def __init__(self, binary, root, folder, cache):
        self.binary, self.root, self.folder = binary, root, folder
        commands = folder / ".bin"
        commands.mkdir()
        (commands / "tandem").symlink_to(binary)
        (commands / "python").symlink_to(sys.executable)
        self.port = free_port()
        self.environment = os.environ | {"PATH": f"{commands}:{os.environ['PATH']}", "TANDEM_PORT": str(self.port), "XDG_CACHE_HOME": str(cache)}
        self.server = None

    def run(self, block):
        """Runs or checks a block; an AssertionError says what went wrong."""
        getattr(self, f"_{block.how}")(block)

    def close(self):
        if self.server is not None:
            self.server.send_signal(signal.SIGTERM)
            code = self.server.wait(STOP_SECONDS)
            self.server = None
            assert code == 0, f"the server of the page ended with code {code}: {self._log()}"

    def _command(self, block):
        text = block.text.replace(ADDRESS, f"127.0.0.1:{self.port}")
        return [sys.executable, "-c", text] if block.kind == "python" else ["bash", "-euo", "pipefail", "-c", text]

    def _run(self, block):
        done = subprocess.run(self._command(block), cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=START_SECONDS)
        assert done.returncode == 0, f"line {block.line}: code {done.returncode}\n{done.stdout}{done.stderr}{self._log()}"
        if block.output is None:
            assert '{"error"' not in done.stdout, f"line {block.line}: the server refused: {done.stdout}"
        else:
            missing = missing_lines(block.output, done.stdout)
            assert not missing, f"line {block.line}: printed {done.stdout!r}, which lacks {missing}"

    def _serve(self, block):
        self.close()
        log = open(self.folder / ".server.log", "wb")
        with log:
            self.server = subprocess.Popen(["bash", "-c", "exec " + block.text], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                                           stdout=log, stderr=subprocess.STDOUT)
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            code = self.server.poll()
            assert code is None, f"line {block.line}: the server ended with code {code}: {self._log()}"
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{self.port}/ready", timeout=5, verify=False).status_code == 200:
                    return
            time.sleep(0.05)
        raise AssertionError(f"line {block.line}: not ready after {START_SECONDS} s: {self._log()}")

    def _check(self, block):
        assert block.kind == "sh", f"line {block.line}: only shell can be checked without a run"
        done = subprocess.run(["bash", "-n", "-c", block.text], capture_output=True, text=True)
        assert done.returncode == 0, f"line {block.line}: {done.stderr}"
        for file in re.findall(r"(?<![\w/.])(?:\./)?((?:scripts/)?[\w-]+\.(?:sh|py))\b", block.text):
            assert (self.root / file).is_file(), f"line {block.line}: there is no {file}"
        for flags in re.findall(r"^tandem serve \S+ ?(.*?)(?:\s#.*)?$", block.text, re.MULTILINE):
            model = self.root / "tests" / "goldens" / "llama-gqa-rope3-f32"
            done = subprocess.run([self.binary, "serve", str(model), *flags.split(), "--check"], capture_output=True, text=True, env=self.environment)
            assert done.returncode == 0, f"line {block.line}: {done.stderr}"

    def _log(self):
        log = pathlib.Path(self.folder / ".server.log")
        return "\n" + "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.exists() else ""
