#!/usr/bin/env bash
# Makes a PNG beside each SVG of the given folders and those below them, at twice the size.
# Needs rsvg-convert (Debian: librsvg2-bin).
#
# Usage: scripts/plots_to_png.sh FOLDER...
set -euo pipefail

if [ $# -eq 0 ]; then
  echo "usage: $0 FOLDER..." >&2
  exit 2
fi
if ! command -v rsvg-convert > /dev/null; then
  echo "$0: rsvg-convert is missing; install the package librsvg2-bin" >&2
  exit 1
fi
count=0
while IFS= read -r -d '' svg; do
  rsvg-convert --zoom 2 --output "${svg%.svg}.png" "$svg"
  count=$((count + 1))
done < <(find "$@" -name '*.svg' -print0 | sort -z)
echo "made $count PNG files"
