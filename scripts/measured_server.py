"""A server of any make for as long as a measurement takes: its time to become ready and the peak memory of its processes."""
import os
import signal
import socket
import subprocess
import threading
import time

PAGE = os.sysconf("SC_PAGE_SIZE")


class ServerFailure(Exception):
    """How a server failed."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def tree(root):
    """Ids of a process and all of its descendants."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it ended meanwhile
            children.setdefault(parent, []).append(int(entry))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def resident_bytes(processes):
    total = 0
    for process in processes:
        try:
            with open(f"/proc/{process}/statm", encoding="ascii") as file:
                total += int(file.read().split()[1]) * PAGE
        except OSError:
            continue
    return total


class MeasuredServer:
    """Started in a session of its own, so that a Ctrl-C at the terminal reaches it through stop() alone."""

    def __init__(self, command, port, environment, log):
        self.port = port
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                raise ServerFailure(f"port {port} is busy; give another --port, or none")
        self.began = time.monotonic()
        try:
            self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                            env=os.environ | environment)
        except OSError as error:
            raise ServerFailure(f"did not start: {error}") from error
        self.peak_bytes = 0
        self._stopping = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()

    def _sample(self):
        while not self._stopping.wait(0.2):
            self.peak_bytes = max(self.peak_bytes, resident_bytes(tree(self.process.pid)))

    def alive(self):
        return self.process.poll() is None

    def how_it_ended(self):
        code = self.process.poll()
        return f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"code {code}"

    def _answers(self, path):
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
                return b" 200 " in connection.recv(64)
        except OSError:
            return False

    def wait_ready(self, path, seconds):
        """Seconds from the start until `path` answers 200."""
        while time.monotonic() - self.began < seconds:
            if not self.alive():
                raise ServerFailure(f"ended while it started ({self.how_it_ended()}); see its server.log")
            if self._answers(path):
                return time.monotonic() - self.began
            time.sleep(0.02)
        raise ServerFailure(f"was not ready after {seconds:.0f} s; see its server.log, or give a longer --start-timeout")

    def stop(self):
        """Without waiting for answers that are under way: a second SIGTERM follows the first, and SIGKILL after ten seconds."""
        self._stopping.set()
        self._sampler.join()
        for _ in range(2):
            if self.alive():
                self.process.send_signal(signal.SIGTERM)
                try:
                    self.process.wait(0.5)
                except subprocess.TimeoutExpired:
                    continue
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # also processes that it left behind
        except ProcessLookupError:
            pass
        self.process.wait()
