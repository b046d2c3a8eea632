#!/usr/bin/env bash
# Runs scheduling policies in random worlds of virtual time, more of them than ./test.sh does, or one again.
# Usage: scripts/worlds.sh [--seeds FIRST COUNT] [--policy NAME] [--preset dev|asan|tsan]
#   --seeds FIRST COUNT  which worlds of each policy (default: 1 20000; about 20 s of one core for each policy)
#   --policy NAME        that policy only (default: all)
#   --preset NAME        the build to run: dev (default), asan or tsan
# Environment: TANDEM_JOBS  compile jobs
# A policy stops at its first world in which something is wrong and says how to run that world again. Exit code: 0 all was right,
# 1 something was wrong, 2 usage.
set -euo pipefail
cd "$(dirname "$0")/.."

first=1
count=20000
policy='*'
preset=dev
while [ $# -gt 0 ]; do
  case "$1" in
    --seeds) first="${2:?--seeds needs two numbers}"; count="${3:?--seeds needs two numbers}"; shift 2 ;;
    --policy) policy="${2:?--policy needs a name}"; shift ;;
    --preset) preset="${2:?--preset needs a name}"; shift ;;
    -h|--help) sed -n '2,9s/^# \?//p' "$0"; exit 0 ;;
    *) echo "worlds.sh: unknown argument '$1'; scripts/worlds.sh --help lists them" >&2; exit 2 ;;
  esac
  shift
done
for number in "$first" "$count"; do
  if ! [[ $number =~ ^[0-9]+$ ]]; then
    echo "worlds.sh: '$number' is not a number; use for example --seeds 1 20000" >&2
    exit 2
  fi
done
case "$preset" in
  dev|asan|tsan) ;;
  *) echo "worlds.sh: unknown preset '$preset' (dev, asan or tsan)" >&2; exit 2 ;;
esac

cmake --preset "$preset" >/dev/null
cmake --build "build/$preset" -j "$(scripts/jobs.sh)" --target worlds_test -- --quiet
program=build/$preset/tests/worlds/worlds_test
if [ "$policy" != '*' ] && ! "$program" --gtest_list_tests | grep -q "/$policy "; then
  echo "worlds.sh: there is no policy '$policy'; known are: $("$program" --gtest_list_tests | sed -n 's|^ .*/\([a-z_]*\) .*|\1|p' | sort -u | tr '\n' ' ')" >&2
  exit 2
fi
# One process for each policy: a world that ends its process does not keep the other policies from being run.
failed=0
for name in $("$program" --gtest_list_tests | sed -n 's|^ .*/\([a-z_]*\) .*|\1|p' | sort -u); do
  if [ "$policy" = '*' ] || [ "$policy" = "$name" ]; then
    TANDEM_WORLDS_FIRST=$first TANDEM_WORLDS_COUNT=$count "$program" --gtest_brief=1 --gtest_filter="*/$name" || failed=1
  fi
done
exit $failed
