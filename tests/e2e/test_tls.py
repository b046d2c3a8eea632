"""https with a certificate made for the test, keys from a file that is read again, and files that are refused at start."""
import signal
import socket
import ssl
import subprocess

import httpx
import openai
import pytest
from conftest import GOLDENS
from server import until

pytestmark = pytest.mark.core
MODEL = GOLDENS / "llama-gqa-rope3-f32"


def make_certificate(folder, name="server", days=30):
    """A self-signed certificate for 127.0.0.1 and its key: (certificate file, key file)."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", str(days), "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-out", certificate, "-keyout", key],
                   check=True, capture_output=True)
    return certificate, key


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"))


def test_the_openai_client_is_served_over_https(start_server, certificate):
    server = start_server(MODEL, "--ssl-certfile", certificate[0], "--ssl-keyfile", certificate[1], "--served-model-name", "golden", "--api-key", "k")
    client = server.openai()
    assert client.models.list().data[0].id == "golden"
    whole = client.completions.create(model="golden", prompt=[65] * 10, max_tokens=20, temperature=0, extra_body={"ignore_eos": True})
    assert whole.usage.completion_tokens == 20
    pieces = client.completions.create(model="golden", prompt=[65] * 10, max_tokens=20, temperature=0, stream=True, extra_body={"ignore_eos": True})
    assert "".join(piece.choices[0].text for piece in pieces if piece.choices) == whole.choices[0].text
    with pytest.raises(openai.AuthenticationError):
        server.openai(key="wrong").models.list()
    for refused in ({}, {"verify": ssl.create_default_context()}):
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.url + "/health", **refused)
    with pytest.raises(httpx.TransportError):
        httpx.get(server.url.replace("https", "http") + "/health")
    assert until(lambda: server.metric("tandem_http_tls_handshakes_failed_total") >= 2)
    assert "https://127.0.0.1" in server.log.read_text()


def test_a_load_is_put_on_a_server_with_tls(binary, start_server, certificate):
    server = start_server(MODEL, "--ssl-certfile", certificate[0], "--ssl-keyfile", certificate[1], "--served-model-name", "golden")

    def bench(host, *flags):
        run = subprocess.run([binary, "bench", "serve", "--base-url", f"https://{host}:{server.port}", "--request-rate", "50", "--num-prompts", "20",
                              "--random-input-len", "16", "--random-output-len", "8", *flags], capture_output=True, text=True, timeout=120)
        return run.returncode, run.stdout + run.stderr

    for host in ("127.0.0.1", "localhost"):
        code, text = bench(host, "--cacert", certificate[0])
        assert code == 0 and "failed" not in text.lower().replace("failed requests", ""), text
    assert bench("127.0.0.1", "--insecure")[0] == 0
    code, text = bench("127.0.0.1")
    assert code == 1 and "--cacert" in text, text
    code, text = bench("127.0.0.2", "--cacert", certificate[0])  # the right signature for another host
    assert code == 1, text
    code, text = bench("127.0.0.1", "--cacert", server.log)
    assert code == 2 and "--cacert" in text, text


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda version: version.name)
def test_a_session_is_resumed_where_clients_may_have_certificates(start_server, certificate, version):
    server = start_server(MODEL, "--ssl-certfile", certificate[0], "--ssl-keyfile", certificate[1], "--ssl-ca-certs", certificate[0], "--ssl-cert-reqs", "1")
    context = ssl.create_default_context(cafile=certificate[0])
    context.maximum_version = version

    def ask(session):
        with socket.create_connection(("127.0.0.1", server.port)) as plain, context.wrap_socket(plain, server_hostname="localhost", session=session) as tls:
            tls.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert tls.recv(1000).startswith(b"HTTP/1.1 200")
            return tls.session, tls.session_reused

    session, reused = ask(None)
    assert not reused
    assert ask(session)[1]


def refusal(binary, *flags):
    run = subprocess.run([binary, "serve", MODEL, "--port", "0", *flags], capture_output=True, text=True, timeout=120)
    assert run.returncode == 2, run.stderr
    return run.stderr


def test_a_certificate_is_read_again_on_sighup(start_server, tmp_path):
    certificate, key = make_certificate(tmp_path)
    server = start_server(MODEL, "--ssl-certfile", certificate, "--ssl-keyfile", key)

    def shown():
        return ssl.get_server_certificate(("127.0.0.1", server.port))

    first = shown()
    other = make_certificate(tmp_path, "other")
    key.write_bytes(other[1].read_bytes())
    server.process.send_signal(signal.SIGHUP)
    assert until(lambda: "the TLS certificate stays as it is" in server.log.read_text())
    assert shown() == first
    certificate.write_bytes(other[0].read_bytes())
    server.process.send_signal(signal.SIGHUP)
    assert until(lambda: shown() != first)
    server.stop_cleanly()


def test_wrong_files_are_refused_at_start(binary, certificate, tmp_path):
    assert "cannot be read" in refusal(binary, "--ssl-certfile", tmp_path / "absent.pem")
    other = make_certificate(tmp_path, "other")
    assert "is not the key of the certificate" in refusal(binary, "--ssl-certfile", certificate[0], "--ssl-keyfile", other[1])
    assert "--ssl-certfile" in refusal(binary, "--ssl-keyfile", certificate[1])
    assert "--ssl-ca-certs" in refusal(binary, "--ssl-certfile", certificate[0], "--ssl-keyfile", certificate[1], "--ssl-cert-reqs", "2")
    for flags in (["--ssl-cert-reqs", "2", "--ssl-ca-certs", certificate[0]], ["--ssl-cert-reqs", "1"], ["--ssl-ca-certs", certificate[0]]):
        assert "give the server's certificate and key with --ssl-certfile and --ssl-keyfile" in refusal(binary, *flags)
        assert "--ssl-certfile" in refusal(binary, "--check", *flags)
    (tmp_path / "keys").write_text("# none\n")
    assert "holds no key" in refusal(binary, "--api-key-file", tmp_path / "keys")


def test_keys_come_from_file_and_environment_and_change_on_sighup(start_server, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# of the team\nfirst\n")
    server = start_server(MODEL, "--api-key-file", keys, "--served-model-name", "golden", env={"TANDEM_API_KEY": "from-environment"})

    def status(key):
        return httpx.get(server.url + "/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code

    assert [status(key) for key in ("first", "from-environment", "second")] == [200, 200, 401]
    keys.write_text("second\n")
    server.process.send_signal(signal.SIGHUP)
    assert until(lambda: status("second") == 200)
    assert [status(key) for key in ("first", "from-environment", "second")] == [401, 200, 200]
    keys.write_text("")
    server.process.send_signal(signal.SIGHUP)
    assert until(lambda: "the keys stay as they are" in server.log.read_text())
    assert status("second") == 200
    server.stop_cleanly()
    log = server.log.read_text()
    assert not any(key in log for key in ("from-environment", "Bearer"))
