"""The commands of README, the quickstart and the page about classes work, and print the output that the pages show."""
import contextlib

import pytest
from conftest import ROOT
from page_commands import PageRun, blocks_of, missing_lines

PAGES = ["README.md", "docs/quickstart.md", "docs/classes.md"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Where servers keep measured step times, so that only the first measures."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_works(binary, tmp_path, cache, page):
    blocks = blocks_of((ROOT / page).read_text())
    assert blocks, "a page without a command needs no test"
    with contextlib.closing(PageRun(binary, ROOT, tmp_path, cache)) as run:
        for block in blocks:
            run.run(block)


def test_a_page_that_is_wrong_is_found(binary, tmp_path, cache):
    def blocks(text):
        return blocks_of(text.replace("~~~", "```"))

    for text, fault in [("~~~\nls\n~~~\n", "not ''"), ("~~~sh\nls\n", "without its end"), ("<!-- ci: skip -->\n~~~sh\nls\n~~~\n", "'ci: skip' is not known"),
                        ("<!-- ci: check -->\n~~~sh\nls\n~~~\n", "needs its reason"), ("~~~text output\nx\n~~~\n", "without a command")]:
        with pytest.raises(AssertionError, match=fault):
            blocks(text)
    run = PageRun(binary, ROOT, tmp_path, cache)
    for text, fault in [("~~~sh\nfalse\n~~~\n", "line 1: code 1"), ("~~~sh\necho 5 ms\n~~~\n~~~text output\n7 s\n~~~\n", "lacks"),
                        ("~~~sh\necho '{\"error\": 1}'\n~~~\n", "the server refused"), ("~~~python\nraise SystemExit(3)\n~~~\n", "code 3"),
                        ("<!-- ci: check (x) -->\n~~~sh\nscripts/not_there.sh\n~~~\n", "there is no scripts/not_there.sh"),
                        ("<!-- ci: check (x) -->\n~~~sh\ntandem serve MODEL --no-such-flag 1\n~~~\n", "no-such-flag"),
                        ("<!-- ci: serve -->\n~~~sh\ntandem serve no-such-folder\n~~~\n", "the server ended with code 2")]:
        with pytest.raises(AssertionError, match=fault):
            for block in blocks(text):
                run.run(block)
        run.server = None


def test_outputs_are_compared_piece_by_piece():
    printed = '{"id": "a", "tier": "flex", "slo": {"ttft_ms": 500.000}}\nrefused: slo_ttft\n'
    assert missing_lines('... "tier": "flex" ... "ttft_ms": 7} ...\nrefused: slo_ttft', printed) == []
    assert missing_lines('... "ttft_ms": 500.000 ... "tier": "flex" ...', printed) == ['"tier":"flex"']
