#!/usr/bin/env python3
"""Holds the pages for users, README.md and docs/*.md, to their form: at most 150 lines, a median sentence of at most 18 words and nine in
ten of at most 30, no name of a source file. In all documents every link to a file and its heading must lead somewhere, and so must every
`docs/...md` that any file of the repository mentions.

Only paragraphs and list items have sentences; tables, headings and code are left out, inline code is one word.

Usage: scripts/check_pages.py [--all | --sentences PAGE]
  --all              print the figures of every page, not only of pages that miss a rule
  --sentences PAGE   print the page's sentences of more than 25 words, longest first
Exit code: 0 all pages meet all rules, 1 a page misses a rule or a link is broken, 2 usage.
"""
import argparse
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_LINES, MAX_MEDIAN, MAX_P90 = 150, 18, 30
SOURCE_FILE = re.compile(r"\b(?:src|apps)/\w|\b\w+/\w+\.(?:cc|h|cu|cuh)\b|\b\w+\.(?:cc|cu|cuh|h)\b")


def sentences(text):
    """The sentences of a page's prose, each as the list of its words."""
    text = re.sub(r"^```.*?^```[^\n]*$", "\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^ {4}\S[^\n]*$", "", text, flags=re.MULTILINE)
    paragraphs, lines = [], []
    for line in [*text.splitlines(), ""]:
        item = re.match(r"\s*(?:[-*]|\d+\.)\s+", line)
        if not line.strip() or item or line.lstrip().startswith(("|", "#", ">", "<", "![")):
            paragraphs.append(" ".join(lines))
            lines = [line[item.end():]] if item else []
        else:
            lines.append(line.strip())
    for paragraph in paragraphs:
        plain = re.sub(r"`[^`]*`", "code", paragraph)
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", plain)
        plain = re.sub(r"[*_]{1,2}", "", plain)
        for sentence in re.split(r"(?<=[.!?])[)\"”]?\s+(?=[A-Z0-9\"“(]|code\b)", plain):
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            if len(words) > 1:
                yield words


def judge(path):
    """A page's figures, and the rules that it misses."""
    text = path.read_text(encoding="utf-8")
    lengths = sorted(len(words) for words in sentences(text))
    median = statistics.median(lengths) if lengths else 0
    p90 = lengths[max(0, -(-len(lengths) * 9 // 10) - 1)] if lengths else 0
    lines = text.splitlines()
    source = SOURCE_FILE.search(text)
    missed = [rule for rule, is_missed in (("lines", len(lines) > MAX_LINES), ("sentences", median > MAX_MEDIAN or p90 > MAX_P90),
                                           ("sources", source is not None)) if is_missed]
    figures = f"{len(lines)} lines, sentences of {median:g} words, nine in ten of at most {p90}"
    return figures + (f", names '{source[0]}'" if source else ""), missed


def anchors(path):
    """What links to a page may have behind '#', as hosts of git repositories make it of headings."""
    names = set()
    for heading in re.findall(r"^#+ +(.*?) *$", re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        names.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return names


def broken_links():
    """A message for every link of a document that leads nowhere, and for every mention of a document that is not there."""
    names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    for name in sorted(set(names)):
        path = ROOT / name
        if name.startswith("tests/fuzz/corpus/") or path.suffix not in {".md", ".h", ".cc", ".cu", ".py", ".sh", ".cmake", ".txt", ".yaml", ".in"} or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for page in set(re.findall(r"(?<![\w/.-])docs/[\w/-]+\.md", text)):
            if not (ROOT / page).is_file():
                yield f"{name}: mentions {page}, which is not there"
        if path.suffix == ".md":
            for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)):
                file, _, anchor = target.partition("#")
                if re.match(r"\w+:", target):
                    continue
                page = (path.parent / file).resolve() if file else path
                if not page.exists():
                    yield f"{name}: the link to {target} leads nowhere"
                elif anchor and page.suffix == ".md" and anchor not in anchors(page):
                    yield f"{name}: {target}: {page.name} has no such heading"


def main():
    parser = argparse.ArgumentParser(usage="check_pages.py [--all | --sentences PAGE]", description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--sentences", metavar="PAGE")
    arguments = parser.parse_args()
    if arguments.sentences:
        text = pathlib.Path(arguments.sentences).read_text(encoding="utf-8")
        for words in sorted((words for words in sentences(text) if len(words) > 25), key=len, reverse=True):
            print(len(words), " ".join(words))
        return 0

    errors = []
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for path in pages:
        name = str(path.relative_to(ROOT))
        figures, missed = judge(path)
        if missed:
            errors.append(f"{name}: {', '.join(missed)}: {figures}; at most {MAX_LINES} lines, a median of {MAX_MEDIAN} words, nine in ten "
                          f"of at most {MAX_P90}, no source file")
        elif arguments.all:
            print(f"pages: {name}: {figures}")
    missing = len(errors)
    errors += broken_links()
    for error in errors:
        print(error, file=sys.stderr)
    print(f"pages: {len(pages)} pages, {len(pages) - missing} meet every rule, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
