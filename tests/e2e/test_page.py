"""The page at / and what feeds it: over HTTP, and in a real browser (Debian's chromium through Playwright) where there is one."""
import base64
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import subprocess
import time

import pytest
from conftest import GOLDENS, ROOT, launch
from server import until

MODEL = GOLDENS / "llama-gqa-rope3-f32"
SOURCES = ROOT / "src" / "api" / "page"
# One server that has all that the panel shows: two tiers, admission, a model of time.
EVERYTHING = ("--max-model-len", "256", "--max-num-batched-tokens", "128", "--max-num-seqs", "8", "--policy", "omniserve", "--emulate-accelerator",
              "link-gbps=1", "--device-memory", "512MiB", "--host-memory", "64MiB")


@pytest.fixture(scope="module")
def everything(binary, tmp_path_factory):
    profile = tmp_path_factory.mktemp("profile") / "tiers.json"
    done = subprocess.run([str(binary), "profile", str(MODEL), *EVERYTHING, "-o", str(profile), "--time", "3s", "--held-out", "5"],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    server = launch(binary, "page-everything", MODEL, *EVERYTHING, "--profile", profile, "--served-model-name", "golden")
    server.openai().completions.create(model="golden", prompt="Hello", max_tokens=4, extra_body={"slo": {"ttft_ms": 60000}})
    yield server
    server.stop_cleanly()


@pytest.fixture(scope="module")
def slow_model(binary, tmp_path_factory):
    """Some milliseconds a token, so that an answer can be caught while it comes."""
    folder = tmp_path_factory.mktemp("models") / "slow"
    subprocess.run([str(binary), "model", "make", "--preset", "tiny", "--layers", "4", "--hidden", "1024", "--heads", "16", "--kv-heads", "4", "--head-dim",
                    "64", "--intermediate", "2816", "--max-positions", "16384", str(folder)], check=True, capture_output=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def slow(binary, slow_model):
    server = launch(binary, "page-slow", slow_model, "--served-model-name", "slow", "--device-memory", "1GiB")
    yield server
    server.stop_cleanly()


@pytest.fixture(scope="module")
def keyed(binary):
    server = launch(binary, "page-key", MODEL, "--api-key", "sk-page", "--served-model-name", "golden")
    yield server
    server.stop_cleanly()


def status_of(server):
    with server.http() as http:
        answer = http.get("/v1/tandem/status")
    assert answer.status_code == 200 and answer.headers["cache-control"] == "no-store"
    return answer.json()


# --- Over HTTP ---


@pytest.mark.core
def test_the_page_is_one_small_document_of_its_own(server):
    with server.http() as http:
        answer = http.get("/")
        head = http.head("/")
    assert answer.status_code == 200 and answer.headers["content-type"] == "text/html; charset=utf-8"
    assert len(answer.content) < 100_000
    assert head.status_code == 200 and head.content == b"" and head.headers["content-length"] == str(len(answer.content))
    html = answer.text
    outside = set(re.findall(r"https?://[^\s'\"<>]+", html)) - {"http://www.w3.org/2000/svg"}
    assert not outside
    assert not re.search(r"\bsrc=|@import|url\(|<iframe|<object", html)
    assert re.findall(r'<link [^>]*href="(.{5})', html) == ["data:"]


@pytest.mark.core
def test_nothing_but_the_pages_own_scripts_and_styles_may_run(server):
    with server.http() as http:
        answer = http.get("/")
    policy = {part.split()[0]: part.split()[1:] for part in answer.headers["content-security-policy"].split("; ")}

    def hashes(tag):
        blocks = re.findall(f"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        return ["'sha256-" + base64.b64encode(hashlib.sha256(block.encode()).digest()).decode() + "'" for block in blocks]

    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == ["'none'"]
    assert policy["script-src"] == hashes("script") and len(policy["script-src"]) == 3
    assert policy["style-src"] == hashes("style") and len(policy["style-src"]) == 1
    assert policy["connect-src"] == ["'self'"] and policy["require-trusted-types-for"] == ["'script'"]
    assert "unsafe" not in str(policy)
    assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer" and answer.headers["cache-control"] == "no-cache"


def test_other_methods_and_paths_are_refused(server):
    with server.http() as http:
        answer = http.post("/", json={})
        assert answer.status_code == 405 and answer.headers["allow"] == "GET"
        assert http.get("/index.html").status_code == 404
        assert http.post("/v1/tandem/status", json={}).status_code == 405


def test_without_ui_there_is_no_page(start_server):
    server = start_server(MODEL, "--no-ui")
    with server.http() as http:
        answer = http.get("/")
        assert answer.status_code == 404 and answer.json() == http.get("/no/such/path").json()
        assert http.get("/v1/tandem/config").json()["no_ui"] is True
    assert status_of(server)["state"] == "ready"


@pytest.mark.core
def test_the_page_is_open_and_what_it_shows_needs_the_key(keyed):
    with keyed.http() as http:
        assert http.get("/", headers={"Authorization": ""}).status_code == 200
        for wrong in ("", "Bearer sk-other"):
            refused = http.get("/v1/tandem/status", headers={"Authorization": wrong})
            assert refused.status_code == 401 and refused.json()["error"]["code"] == "invalid_api_key"
        assert "sk-page" not in http.get("/").text + http.get("/v1/tandem/status").text


@pytest.mark.core
def test_the_status_says_what_each_model_does(server):
    status = status_of(server)
    assert status["state"] == "ready" and status["version"] and status["connections"] >= 1 and status["answers"] == 0
    process = status["process"]
    assert process["resident_bytes"] > 1 << 20 and process["cpu_seconds"] > 0
    assert abs(time.time() - process["started_unix_seconds"]) < 3600
    (model,) = status["models"]
    assert model["name"] == "golden" and model["policy"] == "sarathi"
    before = model["metrics"]
    assert before["requests_running"] == 0 and before["kv_blocks"] > 0 and "host_kv_blocks" not in before
    server.openai().completions.create(model="golden", prompt="Hello", max_tokens=5, extra_body={"service_tier": "flex", "ignore_eos": True, "slo": {"ttft_ms": 60000}})
    after = status_of(server)["models"][0]["metrics"]
    assert after["generation_tokens_total"] == before["generation_tokens_total"] + 5
    assert after["step_seconds"]["count"] > before["step_seconds"]["count"] and after["step_seconds"]["sum"] > 0

    def of_class(metrics, name, **labels):
        return next(one for one in metrics[name] if {"class": "best_effort", **labels}.items() <= one.items())

    assert of_class(after, "inter_token_latency_seconds")["count"] == of_class(before, "inter_token_latency_seconds")["count"] + 4
    assert of_class(after, "slo_requests_total", outcome="met")["value"] == of_class(before, "slo_requests_total", outcome="met")["value"] + 1
    assert of_class(after, "requests_waiting_by_class")["value"] == 0


def test_waiting_sequences_are_counted_by_class(slow_model, start_server):
    server = start_server(slow_model, "--max-num-seqs", "1", "--max-model-len", "2048", "--device-memory", "512MiB")
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        client = server.openai()
        tiers = ["priority"] + ["flex"] * 3 + ["priority"] * 2
        answers = [pool.submit(client.completions.create, model=server.model_name(), prompt="Hello", max_tokens=150, service_tier=tier, extra_body={"ignore_eos": True}) for tier in tiers]

        def waiting():
            metrics = status_of(server)["models"][0]["metrics"]
            by_class = {one["class"]: one["value"] for one in metrics["requests_waiting_by_class"]}
            assert set(by_class) == {"latency_sensitive", "best_effort"}
            return by_class["best_effort"] >= 2 and by_class["latency_sensitive"] >= 1 and sum(by_class.values()) == metrics["requests_waiting"]

        assert until(waiting)
        assert all(answer.result().choices[0].finish_reason == "length" for answer in answers)


def test_all_that_the_panel_reads_is_there(everything):
    (model,) = status_of(everything)["models"]
    script = (SOURCES / "panel.js").read_text()
    read = set(re.findall(r"\b(?:m|now|then|one\.m)\.([a-z]\w*_\w+)", script))
    read |= set(re.findall(r'\b(?:series|total|valueOf)\(\w+, "(\w+)"', script)) | set(re.findall(r'\bof\("(\w+)"', script))
    assert len(read) > 25 and {"visits_total", "kv_blocks", "last_ttft_forecast_seconds", "regime"} <= read
    # These begin with the first event of their kind.
    late = {"regime", "step_time_error_ratio", "step_time_predicted_seconds_total", "step_time_measured_seconds_total"}
    assert read - late <= set(model["metrics"])
    assert model["metrics"]["last_ttft_forecast_seconds"] > 0


def test_polls_are_not_logged_but_refused_ones_are(start_server):
    server = start_server(MODEL, "--api-key", "sk-log")
    status_of(server)
    with server.http() as http:
        http.get("/v1/tandem/status", headers={"Authorization": "Bearer wrong"})
        http.get("/version")
    assert until(lambda: "path=/version" in server.log.read_text())
    lines = [line for line in server.log.read_text().splitlines() if "path=/v1/tandem/status" in line]
    assert len(lines) == 1 and "status=401" in lines[0]


def test_a_viewer_costs_less_than_a_hundredth_of_a_core(everything):
    """An open page asks once a second, so the time of one answer is the share of a core."""
    polls = 300
    with everything.http() as http:
        http.get("/v1/tandem/status")
        began = status_of(everything)["process"]["cpu_seconds"]
        for _ in range(polls):
            assert http.get("/v1/tandem/status").status_code == 200
        spent = status_of(everything)["process"]["cpu_seconds"] - began
    print(f"{1000 * spent / polls:.2f} ms a poll")
    assert spent / polls < 0.01


# --- In the browser ---


@pytest.fixture(scope="module")
def browser():
    """Module scope: while Playwright is open, its event loop runs in this thread and asyncio.run() fails."""
    chromium = os.environ.get("TANDEM_CHROMIUM") or shutil.which("chromium")
    if not chromium:
        pytest.skip("chromium is missing; scripts/install_packages.sh test installs it, or set TANDEM_CHROMIUM")
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is missing (tests/e2e/requirements.txt)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


class View:
    """A tab that shows a server's page."""

    def __init__(self, browser, server, expected=(), **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.expected = expected  # parts of console messages that are no fault
        self.faults = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda message: self.faults.append(message.text) if message.type == "error" else None)
        self.server = server

    def open(self):
        self.page.goto(self.server.url + "/")
        return self

    def ready(self):
        self.page.wait_for_selector("#state[data-state=ready]")
        self.page.wait_for_selector("#model:enabled")
        return self

    def write(self, text, **options):
        """Sends a message by keyboard; options are texts of the fields of Options."""
        for name, value in options.items():
            if self.page.locator("#options").is_hidden():
                self.page.click("#options-button")
            self.page.fill("#" + name.replace("_", "-"), str(value))
        self.page.fill("#prompt", text)
        self.page.press("#prompt", "Enter")

    def streams(self):
        """Waits until an answer is under way."""
        self.page.wait_for_function("() => document.querySelector('.answer.streams > .text:not(.thought)')?.textContent.length > 10")

    def answer(self, number=-1):
        """The last answer once it has ended: (text, facts)."""
        self.page.wait_for_selector("#send:visible")
        card = self.page.locator("article.answer").nth(number)
        return card.locator(".text:not(.thought)").inner_text(), card.locator(".facts").inner_text()

    def close(self):
        self.context.close()
        unexpected = [fault for fault in self.faults if not any(part in fault for part in self.expected)]
        assert not unexpected, unexpected


@pytest.fixture
def view(browser):
    """view(server, ...): an open tab; at the end no script has failed and nothing was against the policy."""
    views = []

    def make(server, expected=(), **options):
        views.append(View(browser, server, expected, **options))
        return views[-1].open()

    yield make
    for one in views:
        one.close()


def test_an_answer_streams_and_is_described(view, slow):
    tab = view(slow).ready()
    tab.write("Once upon a time", max_tokens=300, temperature=0)
    tab.streams()
    text, facts = tab.answer()
    assert len(text) > 20
    for part in ("first token", "tokens/s", "class chat", "targets none", "attention on the device"):
        assert part in facts, facts
    assert int(re.search(r"(\d+) tokens?\b(?!/s)", facts)[1]) > 20
    tab.page.click("details.more summary")
    assert "Longest time between tokens" in tab.page.inner_text("details.more")
    # What went before is sent with the next message.
    sent = []
    tab.page.on("request", lambda request: sent.append(request.post_data_json) if "completions" in request.url else None)
    tab.write("And then?", max_tokens=3)
    tab.answer()
    assert [message["role"] for message in sent[0]["messages"]] == ["user", "assistant", "user"]
    assert sent[0]["messages"][1]["content"].strip() == text.strip()


def test_an_answer_can_be_stopped_by_button_and_by_key(view, slow):
    tab = view(slow).ready()
    for stop in (lambda: tab.page.click("#stop"), lambda: tab.page.keyboard.press("Escape")):
        tab.write("Once upon a time", max_tokens=12000, temperature=0)
        tab.streams()
        stop()
        text, facts = tab.answer()
        assert "stopped" in facts and "first token" in facts and len(text) > 5
        assert until(slow.is_idle)
        tab.page.click("#clear")


def test_batch_is_batch_and_the_panel_counts_it(view, everything):
    tab = view(everything).ready()
    tab.page.check("input[value=flex]")
    tab.write("Hello", max_tokens=60, ttft=60000)
    text, facts = tab.answer()
    assert "class batch" in facts and "targets met" in facts
    tab.page.wait_for_function("() => document.getElementById('kept-batch').textContent === '100 %'")
    tab.page.wait_for_function("() => /ms|s$/.test(document.getElementById('first-batch').textContent)")
    panel = tab.page.inner_text("#panel")
    for part in ("omniserve", "Offloaded sequences", "Visits/s", "Hops/s", "Forecast of the last arrival", "Predicted", "Host KV", "resident"):
        assert part in panel + tab.page.inner_text(".top"), part


def test_a_refusal_shows_its_forecast_and_what_to_do(view, everything):
    tab = view(everything, expected=["429"]).ready()
    tab.write("Hello " * 20, ttft="0.01", max_tokens=5)
    card = tab.page.wait_for_selector(".trouble")
    assert card.get_attribute("data-code") == "slo_ttft_impossible"
    words = card.inner_text()
    assert "Refused: these targets cannot be met" in words and "Forecast" in words and "Target" in words and "0.0 ms" in words
    assert not tab.page.get_by_role("button", name="Try again").is_visible(), "it would be refused again"
    tab.page.get_by_role("button", name="Send as batch").click()
    _, facts = tab.answer()
    assert "class batch" in facts and "targets missed" in facts
    tab.page.wait_for_function("() => document.getElementById('admission').textContent.includes('slo_ttft_impossible')")


def test_a_refusal_that_passes_counts_down_to_the_next_try(view, server):
    tab = view(server, expected=["429"]).ready()
    refusal = {"error": {"message": "the request was not accepted: by forecast it is late", "type": "rate_limit_error", "param": None,
                         "code": "slo_ttft", "forecast": {"ttft_ms": 1655.21, "ttft_target_ms": 500.0, "retry_after_ms": 1200.0}}}
    tab.page.route("**/v1/chat/completions", lambda route: route.fulfill(status=429, json=refusal, headers={"retry-after-ms": "1200", "x-should-retry": "true"}))
    tab.write("Hello")
    again = tab.page.wait_for_selector(".trouble button:first-of-type")
    assert again.is_disabled() and again.inner_text().startswith("Try again in ")
    assert "1.66 s" in tab.page.inner_text(".trouble") and "500 ms" in tab.page.inner_text(".trouble")
    tab.page.unroute("**/v1/chat/completions")
    tab.page.wait_for_selector(".trouble button:first-of-type:enabled")
    tab.page.get_by_role("button", name="Try again").click()
    _, facts = tab.answer()
    assert "first token" in facts and tab.page.locator(".trouble").count() == 0


HOSTILE = "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=1</script>\n```html\n<b onmouseover=alert(1)>x</b>\n```\n&lt;end&gt;"


def test_nothing_a_model_writes_becomes_html(view, server):
    tab = view(server, expected=["429", "Trusted", "TrustedHTML"])
    tab.page.route("**/v1/models", lambda route: route.fulfill(json={"object": "list", "data": [{"id": HOSTILE}]}))
    tab.page.reload()
    tab.ready()
    pieces = [HOSTILE[i:i + 7] for i in range(0, len(HOSTILE), 7)]
    chunks = [{"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}], "service_tier": HOSTILE} for piece in pieces]
    stream = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    tab.page.route("**/v1/chat/completions", lambda route: route.fulfill(body=stream, headers={"content-type": "text/event-stream"}))
    tab.write(HOSTILE)
    text, _ = tab.answer()
    assert text.replace("\n", "") == HOSTILE.replace("```html", "").replace("```", "").replace("\n", "")
    assert tab.page.inner_text(".answer pre") == "<b onmouseover=alert(1)>x</b>"
    assert tab.page.inner_text(".user") == HOSTILE
    tab.page.unroute("**/v1/chat/completions")
    error = {"error": {"message": HOSTILE, "code": HOSTILE, "type": "x", "param": None}}
    tab.page.route("**/v1/chat/completions", lambda route: route.fulfill(status=429, json=error))
    tab.write("again")
    assert "onerror" in tab.page.wait_for_selector(".trouble").inner_text()
    assert tab.page.evaluate("document.querySelectorAll('main img, main script, main b[onmouseover]').length") == 0
    assert tab.page.evaluate("window.hacked") is None
    # The policy would stop it even if the page tried.
    assert tab.page.evaluate("() => { try { document.body.innerHTML = '<i>x</i>'; return 'set'; } catch (error) { return error.name; } }") == "TypeError"


def test_a_page_that_is_open_while_the_server_dies_recovers(view, binary, slow_model, monkeypatch):
    first = launch(binary, "page-dies", slow_model, "--served-model-name", "slow", "--device-memory", "1GiB")
    tab = view(first, expected=["ERR_", "Failed to load"]).ready()
    tab.write("Once upon a time", max_tokens=12000, temperature=0)
    tab.streams()
    first.process.kill()
    first.stop()
    tab.page.get_by_text("The connection ended before the answer did").wait_for()
    tab.page.get_by_text("The server does not answer").wait_for()
    assert tab.page.inner_text("#state") == "no answer"
    tab.write("Are you there?")
    tab.page.get_by_text("The server cannot be reached").wait_for()
    monkeypatch.setattr("server.free_port", lambda: first.port)
    second = launch(binary, "page-lives", slow_model, "--served-model-name", "other", "--device-memory", "1GiB")
    try:
        tab.page.get_by_text("The server was restarted").wait_for()
        tab.ready()
        tab.page.wait_for_function("() => document.getElementById('model').value === 'other'")
        tab.page.get_by_role("button", name="Try again").last.click()
        tab.streams()
        tab.page.click("#stop")
        _, facts = tab.answer()
        assert "stopped" in facts and tab.page.locator(".user").count() == 2
    finally:
        second.stop_cleanly()


def test_the_key_is_asked_for_and_kept_in_the_tab_alone(view, keyed):
    tab = view(keyed, expected=["401"])
    dialog = tab.page.locator("#key-dialog")
    dialog.wait_for()
    assert "needs a key" in dialog.inner_text()
    tab.page.fill("#key", "sk-wrong")
    tab.page.press("#key", "Enter")
    tab.page.get_by_text("The server does not know this key").wait_for()
    tab.page.fill("#key", "sk-page")
    tab.page.press("#key", "Enter")
    tab.ready()
    tab.write("Hello", max_tokens=3)
    assert "first token" in tab.answer()[1]
    assert tab.page.evaluate("sessionStorage.getItem('tandem-key')") == "sk-page"
    assert tab.page.evaluate("localStorage.length") == 0 and tab.page.evaluate("document.cookie") == ""
    tab.page.reload()
    tab.ready()
    assert not dialog.is_visible()
    tab.page.click("#key-button")
    dialog.wait_for()
    assert tab.page.evaluate("sessionStorage.length") == 0
    # Cancelled, the page says so; a message asks again.
    tab.page.keyboard.press("Escape")
    tab.page.get_by_text("This server needs a key. Send a message").wait_for()
    tab.write("Hello again", max_tokens=3)
    dialog.wait_for()
    tab.page.fill("#key", "sk-page")
    tab.page.press("#key", "Enter")
    assert "first token" in tab.answer()[1]
    tab.ready()


def test_a_key_that_a_restart_made_unknown_is_asked_for_again(view, binary, monkeypatch):
    first = launch(binary, "page-key-1", MODEL, "--api-key", "sk-1")
    tab = view(first, expected=["401", "ERR_"])
    tab.page.fill("#key", "sk-1")
    tab.page.press("#key", "Enter")
    tab.ready()
    first.stop_cleanly()
    monkeypatch.setattr("server.free_port", lambda: first.port)
    second = launch(binary, "page-key-2", MODEL, "--api-key", "sk-2")
    try:
        tab.page.get_by_text("The server does not know this key").wait_for()
        tab.page.fill("#key", "sk-2")
        tab.page.press("#key", "Enter")
        tab.page.wait_for_selector("#key-dialog", state="hidden")
        tab.ready()
        tab.write("Hello", max_tokens=3)
        assert "first token" in tab.answer()[1]
    finally:
        second.stop_cleanly()


def test_a_hidden_page_asks_nothing(view, server):
    tab = view(server).ready()
    polls = []
    tab.page.on("request", lambda request: polls.append(request.url) if request.url.endswith("/v1/tandem/status") else None)
    hide = "(hidden) => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true}); document.dispatchEvent(new Event('visibilitychange')); }"
    tab.page.wait_for_timeout(2500)
    assert 1 <= len(polls) <= 4, "once a second"
    tab.page.evaluate(hide, True)
    tab.page.wait_for_timeout(300)
    polls.clear()
    tab.page.wait_for_timeout(2500)
    assert polls == []
    tab.page.evaluate(hide, False)
    tab.page.wait_for_timeout(500)
    assert polls


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_light_and_dark(view, everything, scheme):
    tab = view(everything, viewport={"width": 360, "height": 740}, color_scheme=scheme).ready()
    tab.write("A-rather-long-word-without-any-blank-" * 4, max_tokens=20)
    tab.answer()
    bright = tab.page.evaluate("() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((part) => part > 128)")
    assert bright == (scheme == "light")
    for name in ("Server", "Chat"):
        tab.page.get_by_role("button", name=name, exact=True).click()
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 360, name
        box = tab.page.locator("#send" if name == "Chat" else "#rate").bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= 360


def test_everything_can_be_reached_by_keyboard(view, server):
    tab = view(server).ready()
    assert tab.page.evaluate("document.activeElement.id") == "prompt"
    reached = set()
    for _ in range(20):
        tab.page.keyboard.press("Tab")
        reached.add(tab.page.evaluate("document.activeElement.id || document.activeElement.name || ''"))
    assert {"model", "log", "class", "options-button", "clear", "send", "panel"} - {"panel"} <= reached, reached
    tab.page.focus("input[name=class]")
    tab.page.keyboard.press("ArrowRight")
    assert tab.page.evaluate("document.querySelector('input[name=class]:checked').value") == "flex"
