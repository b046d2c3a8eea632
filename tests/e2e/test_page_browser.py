"""The page at / in a real browser: Debian's chromium through Playwright. Skipped where one of them is missing."""
import json
import os
import re
import shutil

import pytest
from conftest import launch
from page_servers import MODEL, everything, keyed, slow, slow_model  # noqa: F401 (fixtures)
from server import until

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
        # A short answer may be over before anyone looks: the page itself notes that it saw the answer grow.
        self.page.evaluate("""() => {
            window.streamed = false;
            const observer = new MutationObserver(() => {
                const length = document.querySelector('.answer.streams > .text:not(.thought)')?.textContent.length;
                if (length > 10) { window.streamed = true; observer.disconnect(); }
            });
            observer.observe(document.body, {childList: true, characterData: true, subtree: true});
        }""")
        self.page.press("#prompt", "Enter")

    def streams(self):
        """Waits until the answer to the last message has begun to grow."""
        self.page.wait_for_function("() => window.streamed")

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
    tab.write("Once upon a time", max_tokens=100, temperature=0)
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
