#!/usr/bin/env bash
# Checks what a compiler does not: include layers, file and function sizes, error codes, wording (scripts/check_words.py), the form of
# users' pages (scripts/check_pages.py), formatting, and (on request) clang-tidy.
# Usage: scripts/lint.sh [--tidy [BUILD_FOLDER]]
#   --tidy   also run clang-tidy with .clang-tidy on the files of BUILD_FOLDER/compile_commands.json (default: build/dev);
#            takes minutes
set -euo pipefail
cd "$(dirname "$0")/.."

tidy_build=
while [ $# -gt 0 ]; do
  case "$1" in
    --tidy)
      tidy_build=build/dev
      if [ $# -gt 1 ]; then tidy_build=$2; shift; fi
      ;;
    -h|--help) sed -n '2,6s/^# \?//p' "$0"; exit 0 ;;
    *) echo "lint.sh: unknown argument '$1' (--tidy or --help)" >&2; exit 2 ;;
  esac
  shift
done

failed=0
python=/usr/bin/python3
[ -x "$python" ] || python=python3
"$python" -B scripts/check_layers.py || failed=1
"$python" -B scripts/check_sizes.py || failed=1
"$python" -B scripts/check_errors.py || failed=1
"$python" -B scripts/check_words.py || failed=1
"$python" -B scripts/check_pages.py || failed=1
scripts/format.sh --check || failed=1

if [ -n "$tidy_build" ]; then
  if [ ! -f "$tidy_build/compile_commands.json" ]; then
    echo "lint: $tidy_build/compile_commands.json is missing; run cmake --preset dev" >&2
    exit 1
  fi
  if grep -q '/unity/' "$tidy_build/compile_commands.json"; then
    echo "lint: $tidy_build compiles several sources as one; clang-tidy reads single ones: cmake --preset dev -B build/tidy -DTANDEM_UNITY=OFF" >&2
    exit 1
  fi
  # Our own files only; generated ones live in the build folder. clang does not know every warning flag of gcc.
  mapfile -t files < <("$python" -c '
import json, os, sys
root = os.getcwd() + os.sep
for entry in json.load(open(sys.argv[1])):
    name = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
    if name.startswith(root) and not name.startswith(root + "build" + os.sep):
        print(name)' "$tidy_build/compile_commands.json" | sort -u)
  echo "tidy: ${#files[@]} files"
  log=$tidy_build/tidy.log
  printf '%s\0' "${files[@]}" |
    xargs -0 -n 1 -P "$(scripts/jobs.sh)" clang-tidy -p "$tidy_build" --quiet --warnings-as-errors='*' \
      --extra-arg=-Wno-unknown-warning-option >"$log" 2>&1 || failed=1
  grep -v ' warnings\? generated\.$' "$log" || true
fi

if [ "$failed" -ne 0 ]; then
  echo "lint: failed; the messages above say what to change" >&2
  exit 1
fi
echo "lint: clean"
