#!/usr/bin/env python3
"""Holds docs/errors.md to the error codes in the sources, both ways.

A code is a string of words joined by underscores in the files that answer with errors. Strings of that form that are no codes are
listed below; a new one must be put there or into the catalogue.

Usage: scripts/check_errors.py   exit code 0 clean, 1 errors found
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NO_CODES = {
    # types of OpenAI's errors
    "invalid_request_error", "authentication_error", "permission_error", "rate_limit_error", "service_unavailable_error", "server_error",
    # fields, files and names
    "custom_id", "status_code", "request_id", "server_load", "max_model_len", "token_strs", "prompt_tokens", "completion_tokens",
    "cached_tokens", "batch_req_", "ttft_ms", "ttft_target_ms", "retry_after_ms",
}
SINGLE_WORDS = {"unsupported", "overloaded", "forbidden", "loading", "draining", "connections", "unavailable"}  # codes without underscore
IN_CATALOGUE_ONLY = {"null", "done"}


def sources():
    for name in ("src/openai/error_body.cc", "src/openai/batch_line.h", "src/openai/batch_line.cc", "src/jobs/batch_run.cc", "src/batches/input_check.cc", "src/batches/results.h",
                 "src/plan/admission.h"):
        yield ROOT / name
    for path in sorted((ROOT / "src/api").glob("*.cc")):
        if "test" not in path.name and "metrics" not in path.name and "log" not in path.name:
            yield path


def main():
    found = {}
    words = set()
    for path in sources():
        text = path.read_text()
        for literal in re.findall(r'"([a-z]+(?:_[a-z]+)*_?)"', text):
            words.add(literal)
            if "_" in literal and literal not in NO_CODES:
                found.setdefault(literal, path.relative_to(ROOT))
    catalogue = (ROOT / "docs" / "errors.md").read_text()
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)*)`", catalogue))
    errors = [f"{path}: '{code}' is not in docs/errors.md; add it with its cure (or to NO_CODES of scripts/check_errors.py)"
              for code, path in sorted(found.items()) if code not in named]
    rows = set(re.findall(r"^\| `([a-z_]+)` \|", catalogue, re.MULTILINE))
    errors += [f"docs/errors.md: '{code}' is in no source any more; remove its row" for code in sorted(rows - words - IN_CATALOGUE_ONLY)]
    errors += [f"docs/errors.md: '{word}' is missing" for word in sorted((SINGLE_WORDS & words) - named)]
    for error in errors:
        print(error, file=sys.stderr)
    print(f"errors: {len(found)} codes, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
