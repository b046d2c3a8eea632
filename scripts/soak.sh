#!/usr/bin/env bash
# Soaks the built server: many clients, half of which disconnect in mid-stream; then nothing may run, every block must be free and
# the memory flat. Usage: scripts/soak.sh [--preset NAME] [--seconds N] [flags of tests/e2e/soak.py]
# Needs ./test.sh to have run once (it builds the binary and build/venv).
set -euo pipefail
cd "$(dirname "$0")/.."
preset=dev
if [ "${1:-}" = --preset ]; then
  preset=$2
  shift 2
fi
for needed in "build/$preset/tandem" build/venv/bin/python; do
  if [ ! -x "$needed" ]; then
    echo "soak.sh: $needed is missing; run ./test.sh first" >&2
    exit 1
  fi
done
export TANDEM_SHARED=${TANDEM_SHARED:-../shared}
exec build/venv/bin/python -B tests/e2e/soak.py --binary "build/$preset/tandem" "$@"
