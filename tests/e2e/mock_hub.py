"""A hub of models on this machine: the routes that `tandem pull` asks, large files on a second port as on a CDN, and faults on demand.

Nothing of it leaves 127.0.0.1. Every request is kept in `requests`, so that tests can say what was asked, and with which headers."""
import hashlib
import http.server
import json
import re
import sys
import threading
import time
import urllib.parse

CHUNK = 64 << 10


class MockServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # clients that hang up are part of the tests


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repository:
    def __init__(self, files, commit):
        self.files = dict(files)
        self.commit = commit

    def is_large(self, path):
        return path.endswith((".safetensors", ".gguf"))

    def checksum(self, path):
        data = self.files[path]
        return hashlib.sha256(data).hexdigest() if self.is_large(path) else git_hash(data)


class Hub:
    def __init__(self):
        self.repositories = {}
        self.requests = []  # (place "hub" or "cdn", method, path, headers)
        self.token = None  # asked for, where it is set
        self.gated = False
        self.busy = []  # (status, Retry-After or None) of the next answers of the hub
        self.busy_body = b""  # of these answers
        self.cdn_busy = []  # likewise of the CDN: status alone
        self.html = False  # the list is a page, as of a portal that asks for a login
        self.blobs = True  # the list has sizes and checksums
        self.relative = False  # small files come after a redirection on the hub itself
        self.in_list = {}  # path -> members of the list's entry to change
        self.more_names = []  # in the list
        self.broken = {}  # path -> numbers of bytes after which the next answers end
        self.silent = {}  # path -> number of answers that stop in the middle without an end
        self.pause = {}  # path -> seconds to wait after each chunk
        self.served = {}  # path -> other bytes than the repository has
        self.headers = {}  # path -> headers to change
        self.no_ranges = False
        self.ending = threading.Event()
        self.servers = [self._start("hub"), self._start("cdn")]

    url = property(lambda self: f"http://127.0.0.1:{self.servers[0].server_port}")
    cdn = property(lambda self: f"http://127.0.0.1:{self.servers[1].server_port}")

    def add(self, name, files, commit="a" * 40):
        self.repositories[name] = Repository(files, commit)
        return self.repositories[name]

    def asked(self, ending, place=None, method="GET"):
        """The headers of each request for a path with this ending."""
        return [headers for where, how, path, headers in self.requests
                if how == method and path.split("?")[0].endswith(ending) and place in (None, where)]

    def forget(self):
        self.requests.clear()

    def close(self):
        self.ending.set()
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def _start(self, place):
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                try:
                    hub.answer(self, place)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            do_HEAD = do_GET

            def log_message(self, *arguments):
                pass

        server = MockServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return server

    def answer(self, request, place):
        path = urllib.parse.unquote(urllib.parse.urlsplit(request.path).path)
        self.requests.append((place, request.command, request.path, dict(request.headers)))
        if place == "cdn" and self.cdn_busy:
            return self.send(request, self.cdn_busy.pop(0), {})
        if place == "cdn":
            name, file = re.fullmatch(r"/([^/]+/[^/]+)/(.+)", path).groups()
            return self.send_file(request, self.repositories[name], file, {})
        if self.busy:
            status, after = self.busy.pop(0)
            return self.send(request, status, {"Retry-After": after} if after is not None else {}, self.busy_body)
        if self.gated:
            return self.send(request, 403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to this model is restricted."})
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return self.send(request, 401, {"X-Error-Code": "RepoNotFound"})
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path):
            return self.send_list(request, *match.groups())
        if match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([0-9a-f]{40}|main)/(.+)", path):
            return self.resolve(request, *match.groups())
        if match := re.fullmatch(r"/small/([^/]+/[^/]+)/(.+)", path):
            repository = self.repositories[match[1]]
            return self.send_file(request, repository, match[2], {"ETag": f'"{repository.checksum(match[2])}"'})
        return self.send(request, 404, {})

    def send(self, request, status, headers, body=b""):
        request.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            if value is not None:
                request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)

    def send_list(self, request, name, revision):
        if self.html:
            return self.send(request, 200, {"Content-Type": "text/html"}, b"<html>Please log in</html>")
        repository = self.repositories.get(name)
        if repository is None:
            return self.send(request, 404, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        if revision not in ("main", "v1", "refs/pr/1", repository.commit):
            return self.send(request, 404, {"X-Error-Code": "RevisionNotFound"})
        siblings = []
        for path, data in sorted(repository.files.items()):
            entry = {"rfilename": path}
            if self.blobs:
                entry |= {"size": len(data), "blobId": git_hash(data)}
                if repository.is_large(path):
                    entry["lfs"] = {"sha256": repository.checksum(path), "size": len(data), "pointerSize": 134}
                for key, value in self.in_list.get(path, {}).items():
                    (entry.get("lfs") or entry)[key] = value
            siblings.append(entry)
        siblings += [{"rfilename": other} for other in self.more_names]
        body = json.dumps({"id": name, "sha": repository.commit, "siblings": siblings}).encode()
        return self.send(request, 200, {"Content-Type": "application/json"}, body)

    def resolve(self, request, name, commit, path):
        repository = self.repositories[name]
        if commit not in (repository.commit, "main") or path not in repository.files:
            return self.send(request, 404, {"X-Error-Code": "EntryNotFound"})
        facts = {"X-Repo-Commit": repository.commit}
        quoted = urllib.parse.quote(path)
        if repository.is_large(path):
            facts |= {"X-Linked-Size": str(len(repository.files[path])), "X-Linked-Etag": f'"{repository.checksum(path)}"',
                      "Location": f"{self.cdn}/{name}/{quoted}?signature=1"}
            return self.send(request, 302, facts | self.headers.get(path, {}))
        if self.relative:
            return self.send(request, 307, facts | {"Location": f"/small/{name}/{quoted}"})
        return self.send_file(request, repository, path, facts | {"ETag": f'"{repository.checksum(path)}"'} | self.headers.get(path, {}))

    def send_file(self, request, repository, path, headers):
        data = self.served.get(path, repository.files[path])
        begin, status = 0, 200
        if (match := re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))) and not self.no_ranges:
            begin, status = int(match[1]), 206
            if begin >= len(data):
                return self.send(request, 416, {"Content-Range": f"bytes */{len(data)}"})
            headers = headers | {"Content-Range": f"bytes {begin}-{len(data) - 1}/{len(data)}"}
        rest = data[begin:]
        end = self.broken[path].pop(0) if self.broken.get(path) else len(rest)
        request.send_response(status)
        for name, value in ({"Content-Length": str(len(rest))} | headers).items():
            request.send_header(name, value)
        request.end_headers()
        if request.command == "HEAD":
            return
        stops = self.silent.get(path, 0) > 0
        if stops:
            self.silent[path] -= 1
            end = len(rest) // 2
        for at in range(0, min(end, len(rest)), CHUNK):
            request.wfile.write(rest[at:min(at + CHUNK, end)])
            if self.ending.wait(self.pause.get(path, 0)):
                return
        if stops:
            self.ending.wait(60)
        if end < len(rest):
            request.close_connection = True


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.01)
