#!/usr/bin/env python3
"""Adds up test reports: GoogleTest's XML files (one per program), ctest's JUnit file and pytest's JUnit files.

A program that crashed leaves no GoogleTest file, and one that died half-way no failed case: then ctest's own verdict counts.
Usage: scripts/count_tests.py REPORT_FOLDER
  reads REPORT_FOLDER/gtest/*.xml, REPORT_FOLDER/ctest.xml, REPORT_FOLDER/pytest*.xml (each may be missing)
  prints the failed tests by name and `passed failed skipped` as the last line, and exits 0
"""
import pathlib
import sys
import xml.etree.ElementTree as ET


def cases(path):
    """Yields (suite, name, verdict) of a JUnit-like file; a file cut short by a crash yields nothing."""
    try:
        root = ET.parse(path).getroot()
    except (ET.ParseError, OSError):
        return
    for case in root.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
            verdict = "failed"
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled", "skipped"):
            verdict = "skipped"
        else:
            verdict = "passed"
        yield case.get("classname") or "", case.get("name") or "", verdict


def main(argv):
    if len(argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    folder = pathlib.Path(argv[1])
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    failing_programs = set()
    programs, skipped = set(), {}
    for path in sorted((folder / "gtest").glob("*.xml")):
        program = path.stem.removesuffix("_test")
        for suite, name, verdict in cases(path):
            programs.add(program)
            counts[verdict] += 1
            if verdict == "failed":
                failing_programs.add(program)
                print(f"  failed: {program}: {suite}.{name}")
            elif verdict == "skipped":
                skipped[program] = skipped.get(program, 0) + 1
    for program, number in skipped.items():
        print(f"  skipped: {program}: {number} (such as instruction sets that this machine lacks)")
    for _, name, verdict in cases(folder / "ctest.xml"):
        if verdict == "failed" and name not in failing_programs:
            counts["failed"] += 1
            print(f"  failed: {name} (the program itself: a crash, a time-out or a sanitizer report)")
        elif verdict != "failed" and name not in programs:
            counts[verdict] += 1
    for path in sorted(folder.glob("pytest*.xml")):
        for suite, name, verdict in cases(path):
            counts[verdict] += 1
            if verdict != "passed":
                print(f"  {verdict}: {suite.replace('.', '/')}: {name}")
    print(counts["passed"], counts["failed"], counts["skipped"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
