"""Speaks to text_driver, the test program that renders templates and tokenizes texts with Tandem's code."""
import json
import os
import pathlib
import subprocess


def driver_path():
    """TANDEM_TEXT_DRIVER, or what lies beside the tandem of TANDEM_BINARY, or that of the dev build."""
    if given := os.environ.get("TANDEM_TEXT_DRIVER"):
        return pathlib.Path(given)
    root = pathlib.Path(__file__).resolve().parents[2]
    return pathlib.Path(os.environ.get("TANDEM_BINARY", root / "build/dev/tandem")).with_name("text_driver")


class Driver:
    """Starts anew after a crash, which counts as an answer of its own kind."""

    def __init__(self, path=None):
        self.path = path or driver_path()
        self.start()

    def start(self):
        self.process = subprocess.Popen([self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, request):
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            self.start()
            return {"crash": code}
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
