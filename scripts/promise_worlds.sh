#!/usr/bin/env bash
# Runs random worlds of tests/scenario/promise_worlds_test.cc: more than ./test.sh does.
# Usage: scripts/promise_worlds.sh FIRST LAST [PROCESSES] [--help]
#   FIRST LAST   seeds of the worlds; 100000 of them take about a quarter of an hour of an idle core with the dev build
#   PROCESSES    how many run at a time (default: 1)
# Needs build/dev/tests/scenario/scenario_test (cmake --build build/dev --target scenario_test).
# The last lines tell what each process found; exit code 0: no guarantee was broken.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
  -h|--help) sed -n '2,7s/^# \?//p' "$0"; exit 0 ;;
esac
if [ $# -lt 2 ] || [ $# -gt 3 ]; then
  echo "promise_worlds.sh: usage: FIRST LAST [PROCESSES]; --help says more" >&2
  exit 2
fi
first=$1
last=$2
processes=${3:-1}
test=build/dev/tests/scenario/scenario_test
if [ ! -x "$test" ]; then
  echo "promise_worlds.sh: $test is missing; build it with cmake --build build/dev --target scenario_test" >&2
  exit 1
fi

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
share=$(((last - first + processes) / processes))
running=()
for ((i = 0; i < processes; ++i)); do
  from=$((first + i * share))
  to=$((from + share - 1))
  if [ "$to" -gt "$last" ]; then to=$last; fi
  if [ "$from" -gt "$to" ]; then break; fi
  TANDEM_PROMISE_WORLDS=$from:$to "$test" --gtest_filter='PromiseWorlds.*' >"$logs/$i" 2>&1 &
  running+=($!)
done
failed=0
for process in "${running[@]}"; do
  wait "$process" || failed=1
done
grep -h '^seed\|worlds,' "$logs"/* || true
exit "$failed"
