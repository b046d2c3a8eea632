"""The lints of wording and pages: a count that rises fails, a count that fell can be kept, a page that misses a rule and a broken link are found."""
import json
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT


@pytest.fixture
def project(tmp_path):
    """A small repository with both scripts, a page that meets the rules, a source with one phrase, and counts of that."""
    for name in ("check_words.py", "check_pages.py"):
        (tmp_path / "scripts").mkdir(exist_ok=True)
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    (tmp_path / "docs").mkdir()
    (tmp_path / "src" / "engine").mkdir(parents=True)
    (tmp_path / "README.md").write_text("# Small\n\nThis page is short. See [the page](docs/page.md#a-part).\n")
    (tmp_path / "docs" / "page.md").write_text("# Page\n\n## A part\nIt has two sentences. Both are short.\n")
    (tmp_path / "src" / "engine" / "a.h").write_text("// Releases the block, which nobody uses.\nint one = 1;\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert lint(tmp_path, "check_words.py", "--lower")[0] == 0
    return tmp_path


def lint(project, name, *arguments):
    done = subprocess.run([sys.executable, "-B", str(project / "scripts" / name), *arguments], cwd=project, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_a_folder_may_not_get_more_phrases_and_keeps_what_it_lost(project):
    source = project / "src" / "engine" / "a.h"
    assert lint(project, "check_words.py")[0] == 0 and json.loads((project / "scripts" / "words.json").read_text())["src/engine"] == 2
    source.write_text(source.read_text() + '// Tells whoever\n// waits what is left of it.\nauto text = "\'x\' is no "\n    "number";\n')
    code, text = lint(project, "check_words.py")
    assert code == 1 and "src/engine: 7 phrases" in text and "2 allowed" in text, text
    listed = lint(project, "check_words.py", "--list", "src")[1]
    for hit in ("a.h:3: tell: 'tells'", "a.h:3: person: 'whoever'", "a.h:4: what: 'what is left'", "a.h:4: of it: 'of it'", "a.h:5: is no: 'is no number'", "a.h:2: name: 'one'"):
        assert hit in listed, f"{hit} is missing in\n{listed}"
    source.write_text("// Releases the block.\n")
    code, text = lint(project, "check_words.py")
    assert code == 0 and "fewer than allowed in src/engine: scripts/check_words.py --lower" in text
    assert lint(project, "check_words.py", "--lower")[0] == 0
    source.write_text("// Nobody uses it.\n")
    assert lint(project, "check_words.py")[0] == 1, "a count that fell may not rise again"
    (project / "src" / "new").mkdir()
    (project / "src" / "new" / "b.cc").write_text("// Somebody comes.\n")
    assert "src/new: 1 phrases" in lint(project, "check_words.py")[1], "a new folder begins with none"


def test_code_and_names_in_texts_are_not_wording(project):
    (project / "src" / "engine" / "a.h").write_text('#include "one.h"\nauto nobody = R"(nobody)"; // Uses `x`.\n')
    assert lint(project, "check_words.py", "--list", "src")[1].endswith("words: 1 hits\n"), "a raw text is read, a name of another kind is not"


@pytest.mark.parametrize("change, fault", [
    ("# Page\n\n## A part\n" + "\n" * 150, "docs/page.md: lines: "),
    ("# Page\n\n## A part\n" + "word " * 31 + "end.\n", "docs/page.md: sentences: "),
    ("# Page\n\n## A part\nThe engine is in src/engine.\n", "docs/page.md: sources: "),
    ("# Page\n\nShort.\n", "docs/page.md#a-part: page.md has no such heading"),
    ("# Page\n\n## A part\nSee [it](gone.md).\n", "the link to gone.md leads nowhere"),
], ids=["lines", "sentences", "sources", "heading", "link"])
def test_a_page_that_misses_a_rule_is_found(project, change, fault):
    assert lint(project, "check_pages.py")[0] == 0
    (project / "docs" / "page.md").write_text(change)
    code, text = lint(project, "check_pages.py")
    assert code == 1 and fault in text, text


def test_a_mention_of_a_document_that_is_not_there_is_found(project):
    (project / "src" / "engine" / "a.h").write_text("// docs/" + "gone.md has the rest.\n")
    code, text = lint(project, "check_pages.py")
    assert code == 1 and "src/engine/a.h: mentions docs/" + "gone.md, which is not there" in text
