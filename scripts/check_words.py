#!/usr/bin/env python3
"""Counts wording that a reader stumbles over, by folder, and holds the counts to scripts/words.json: they may only fall.

Pages of measurements are left out: they are append-only. Read are comments and texts of C++ (and names in it), of Python, shell, CMake, YAML and JavaScript, and prose of Markdown. A pattern is a
symptom, not a proof: a single hit may be good English. So nothing has to be at zero; a folder just must not get worse.

Usage: scripts/check_words.py [--list PATH...] [--lower]
  --list PATH...   print every hit in these files and folders, with what to write instead
  --lower          write counts that fell into scripts/words.json (all counts, if that file does not exist)
Exit code: 0 no count rose, 1 a count rose or a file is wrong, 2 usage.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COUNTS = ROOT / "scripts" / "words.json"

# name: (what is found, what to write instead). The patterns see comments, texts and prose, in lower case.
PATTERNS = {
    "person": (r"\b(?:nobody|somebody|anybody|everybody|whoever|whom|he|him|his)\b|\bwho (?:comes|waits|asks|runs|goes|looks|wants|is not)\b",
               "name the noun: 'no sequence', 'the client', 'the thread that ...'"),
    "one": (r"\bones\b|\bthe one\b|\bone (?:that|which|is|has|whose|who|can|may|where|when)\b",
            "name the noun"),
    "those": (r"\bthose (?:of|that|which|who|whose|with|in|on|before|behind|it|they)\b", "name the noun: 'the blocks of', 'sequences that'"),
    "what": (r"\b(?:of|by|in|with|to|for|and|than|from|all|beside) what\b|\bwhat (?:is|are|was|were) (?:left|there|lost|made|known|over)\b|\bwhat (?:remains|comes|follows|stands|fits|it|they)\b",
             "name the thing: 'the rest', 'the free blocks'"),
    "of it": (r"\bof it(?=[.,;:)\"]|$)", "name the noun, or leave it out"),
    "where": (r"\bwhere (?:there|no|it|they|nothing|neither|either|both|that is|this is|possible|needed|nobody|one)\b",
              "'if' for conditions, 'when' for times; 'where' is for places"),
    "so many": (r"\b(?:so|as) (?:many|much|few|long)\b(?! as)", "name the number: '`count` rows', 'the given time'"),
    "is no": (r"(?<!there )(?<!there’s )\bis no (?!more\b|longer\b|less\b|larger\b|need\b|room\b|way\b|reason\b)[a-z]+", "'is not a ...', 'is not a valid ...'"),
    "metaphor": (r"\b(?:let|lets|letting) (?:it |them |\w+ )?in\b|\btak(?:e|es|en|ing) along\b|\blook(?:s|ed|ing)? after\b|\bgo(?:es)? on\b"
                 r"|\b(?:seat|desk|crew|bell)s?\b|\bbooks?\b(?= (?:are|is|agree|of))|\bin vain\b|\bkept? quiet\b",
                 "the field's verb: admit, evict, offload, bind, notify, continue, retry"),
    "tell": (r"\b(?:tells?|told|telling)\b", "notify, report, return, print"),
    "give back": (r"\b(?:gives?|gave|given|giving|takes?|took|taken) (?:it |them |\w+ )?back\b", "return, release, recall"),
    "stands": (r"\b(?:stands?|stood) (?:in|at|behind|for|beside|before|there|here|below|above|between|on|where)\b", "is, is written, lies, means"),
}
# The same in names of C++, with case.
NAMES = (r"\b(?:most|least|longest|shortest|one|ones|what|whom|who)_?\b|\b\w*(?:Seat|Desk|Crew|Bell)\w*\b|\b\w*_(?:no_longer|comes_back|what_\w+)\w*\b",
         "a noun; 'max' and 'min' for bounds")
COMPILED = {name: re.compile(pattern) for name, (pattern, _) in PATTERNS.items()}
ANY = re.compile("|".join(f"(?:{pattern})" for pattern, _ in PATTERNS.values()))
NAME = re.compile(NAMES[0])

CPP = re.compile(r'//[^\n]*(?:\n[ \t]*//[^\n]*)*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"(?:\s*"(?:\\.|[^"\\\n])*")*|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)
HASH = re.compile(r'"""(.*?)"""|(?:^|(?<=\s))#[^\n]*(?:\n[ \t]*#[^\n]*)*|"(?:\\.|[^"\\\n])*"', re.DOTALL)
FENCE = re.compile(r"^```.*?^```[^\n]*$|^ {4}[^\n]*$", re.DOTALL | re.MULTILINE)
KINDS = {".cc": CPP, ".h": CPP, ".cu": CPP, ".cuh": CPP, ".js": CPP, ".py": HASH, ".sh": HASH, ".cmake": HASH, ".yaml": HASH, ".txt": HASH}
SKIPPED = re.compile(r"^(?:docs/measurements/\d|tests/(?:fuzz/corpus|goldens|differential/\w+\.json|e2e/test_lint\.py)|tools/train/words\.py|scripts/(?:check_words\.py|words\.json))|requirements.*\.txt$")


def texts(path, content):
    """(offset, text) of what people read in a file."""
    if path.suffix == ".md":
        blank = lambda match: re.sub(r"[^\n]", " ", match[0])
        yield 0, re.sub(r"`[^`\n]*`", lambda match: "`" + " " * (len(match[0]) - 2) + "`", FENCE.sub(blank, content))
        return
    if path.name == "CMakeLists.txt" or path.suffix in KINDS:
        for match in (HASH if path.name == "CMakeLists.txt" else KINDS[path.suffix]).finditer(content):
            yield match.start(), match[0]


def flat(text):
    """The text on one line, as long as before: line ends, comment signs and joins of texts become spaces, so that wrapped phrases are found."""
    text = re.sub(r'"\s*\n\s*"', lambda match: " " * len(match[0]), text)
    return re.sub(r"\n[ \t]*(?://|#|>|\*)?", lambda match: " " * len(match[0]), text).lower()


def hits(path):
    """(offset, pattern's name, words) of every hit in a file."""
    content = path.read_text(encoding="utf-8", errors="replace")
    for offset, text in texts(path, content):
        line = flat(text)
        if not ANY.search(re.sub(r"  +", " ", line)):
            continue
        squeezed, places = squeeze(line)
        for name, pattern in COMPILED.items():
            for match in pattern.finditer(squeezed):
                yield offset + places[match.start()], name, match[0]
    if KINDS.get(path.suffix) is CPP and path.suffix != ".js":
        rest = CPP.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), content)
        for match in NAME.finditer(rest):
            yield match.start(), "name", match[0]


def squeeze(line):
    """The line with each run of spaces as one, and where each of its characters stood."""
    parts, places = [], []
    for match in re.finditer(r"\s+|\S+", line):
        if match[0].isspace():
            parts.append(" ")
            places.append(match.start())
        else:
            parts.append(match[0])
            places.extend(range(match.start(), match.end()))
    return "".join(parts), places


def folder_of(name):
    parts = name.split("/")[:-1]
    if parts[:1] in (["src"], ["tests"], ["docs"], ["tools"]):
        return "/".join(parts[:2])
    return parts[0] if parts else "."


def files(wanted=()):
    names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *wanted], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    for name in sorted(set(names)):
        path = ROOT / name
        if not SKIPPED.search(name) and (path.suffix in KINDS or path.suffix == ".md") and path.is_file():
            yield name, path


def show(wanted):
    total = 0
    for name, path in files(wanted):
        content = path.read_text(encoding="utf-8", errors="replace")
        for offset, pattern, words in sorted(hits(path)):
            advice = NAMES[1] if pattern == "name" else PATTERNS[pattern][1]
            print(f"{name}:{content.count(chr(10), 0, offset) + 1}: {pattern}: '{words}'; {advice}")
            total += 1
    print(f"words: {total} hits")
    return 0


def main():
    parser = argparse.ArgumentParser(usage="check_words.py [--list PATH...] [--lower]", description=__doc__.splitlines()[0])
    parser.add_argument("--list", nargs="+", metavar="PATH")
    parser.add_argument("--lower", action="store_true")
    arguments = parser.parse_args()
    if arguments.list:
        return show(arguments.list)

    found = collections.Counter()
    for name, path in files():
        found[folder_of(name)] += sum(1 for _ in hits(path))
    if not COUNTS.exists():
        if not arguments.lower:
            print(f"words: {COUNTS.relative_to(ROOT)} is missing; 'git checkout' it, or write it anew with --lower", file=sys.stderr)
            return 1
        allowed = dict(found)
    else:
        try:
            allowed = json.loads(COUNTS.read_text())
        except json.JSONDecodeError as error:
            print(f"words: {COUNTS.relative_to(ROOT)} is not JSON: {error}", file=sys.stderr)
            return 1
    risen = {folder: count for folder, count in found.items() if count > allowed.get(folder, 0)}
    fallen = {folder: count for folder, count in allowed.items() if found[folder] < count}
    for folder, count in sorted(risen.items()):
        print(f"{folder}: {count} phrases of the kind that 'scripts/check_words.py --list {folder}' prints, {allowed.get(folder, 0)} allowed; reword what was added (for files that moved, move their count in {COUNTS.relative_to(ROOT)})", file=sys.stderr)
    if arguments.lower:
        kept = {folder: min(count, found[folder]) for folder, count in allowed.items() if min(count, found[folder]) > 0}
        COUNTS.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")
    elif fallen:
        print(f"words: fewer than allowed in {', '.join(sorted(fallen))}: scripts/check_words.py --lower keeps it so")
    print(f"words: {sum(found.values())} phrases in {len(found)} folders, more than before in {len(risen)}")
    return 1 if risen else 0


if __name__ == "__main__":
    sys.exit(main())
