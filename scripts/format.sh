#!/usr/bin/env bash
# Formats every C++ file in place with .clang-format, or says which ones are not formatted.
# Usage: scripts/format.sh [--check] [FILE]...   (default: all of src apps tests bench)
set -euo pipefail
cd "$(dirname "$0")/.."

check=0
if [ "${1:-}" = --check ]; then
  check=1
  shift
elif [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  sed -n '2,3s/^# //p' "$0"
  exit 0
fi
command -v clang-format >/dev/null || {
  echo "format: clang-format is missing; run scripts/install_packages.sh test" >&2
  exit 1
}
files=("$@")
if [ ${#files[@]} -eq 0 ]; then
  folders=()
  for folder in src apps tests bench; do
    if [ -d "$folder" ]; then folders+=("$folder"); fi
  done
  mapfile -t files < <(find "${folders[@]}" -type f \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) | sort)
fi
if [ ${#files[@]} -gt 0 ] && [ "$check" -eq 0 ]; then
  clang-format -i "${files[@]}"
elif [ ${#files[@]} -gt 0 ]; then
  unformatted=$(clang-format --dry-run "${files[@]}" 2>&1 | sed -n 's/^\([^: ]*\):.*clang-format-violations.*/\1/p' | sort -u)
  if [ -n "$unformatted" ]; then
    while read -r file; do echo "$file: not formatted" >&2; done <<<"$unformatted"
    echo "format: run scripts/format.sh" >&2
    exit 1
  fi
fi
echo "format: ${#files[@]} files"
