"""A `tandem serve` for as long as a measurement takes."""
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_ready(port, process):
    for _ in range(600):
        if process.poll() is not None:
            sys.exit("the server ended; see its log")
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as connection:
                connection.sendall(b"GET /ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                if b" 200 " in connection.recv(64):
                    return
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit("the server is not ready after a minute; see its log")


@contextlib.contextmanager
def served(binary, model, flags, log):
    """Yields the port of a server that is ready; it sees an empty cache folder, writes to the open file `log` and is ended without waiting for
    what it still has to answer."""
    port = free_port()
    with tempfile.TemporaryDirectory() as cache:
        server = subprocess.Popen([binary, "serve", model, "--port", str(port), *flags], stdout=log, stderr=log,
                                  env=os.environ | {"XDG_CACHE_HOME": cache})
        try:
            wait_ready(port, server)
            yield port
        finally:
            server.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            server.send_signal(signal.SIGTERM)
            server.wait(60)
