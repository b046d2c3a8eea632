#!/usr/bin/env bash
# Builds the fuzz targets of tests/fuzz and runs each on its seeds and on inputs that earlier runs found, a target for each processor
# at a time.
# Usage: scripts/fuzz.sh [--fast] [--seconds N | --runs N] [TARGET...]     (default: 30 seconds a target, all targets)
#   --fast        search without AddressSanitizer (undefined behaviour and the library's checks of indices still end a run), two to three
#                 times the inputs a second; then run all inputs that were kept through the build with both sanitizers
#   --seconds N   stop each target after N seconds
#   --runs N      stop each target after N inputs
# Environment: TANDEM_JOBS  compile jobs
# A finding's input is kept in build/fuzz/findings/TARGET; `build/asan/fuzz/TARGET_fuzz FILE` shows it again. Inputs that reached new
# code are kept in build/fuzz/corpus/TARGET. The last line reads `N passed, N failed` (targets).
set -euo pipefail
cd "$(dirname "$0")/.."

limit=(-max_total_time=30)
targets=()
search=asan
while [ $# -gt 0 ]; do
  case "$1" in
    --seconds) limit=(-max_total_time="${2:?--seconds needs a number}"); shift ;;
    --runs) limit=(-runs="${2:?--runs needs a number}"); shift ;;
    --fast) search=fuzz-fast ;;
    -h|--help) sed -n '2,10s/^# \?//p' "$0"; exit 0 ;;
    -*) echo "fuzz.sh: unknown argument '$1'; scripts/fuzz.sh --help lists them" >&2; exit 2 ;;
    *) targets+=("$1") ;;
  esac
  shift
done
if [ ${#targets[@]} -eq 0 ]; then
  for folder in tests/fuzz/corpus/*/; do targets+=("$(basename "$folder")"); done
fi
for target in "${targets[@]}"; do
  if [ ! -d "tests/fuzz/corpus/$target" ]; then
    echo "fuzz.sh: there is no target '$target'; known are: $(ls tests/fuzz/corpus | tr '\n' ' ')" >&2
    exit 2
  fi
done

scripts/install_packages.sh build test
mkdir -p build
for preset in asan $([ "$search" = asan ] || echo "$search"); do
  cmake --preset "$preset" >build/fuzz.configure.log 2>&1 || { cat build/fuzz.configure.log >&2; echo "0 passed, 1 failed"; exit 1; }
  cmake --build "build/$preset" -j "$(scripts/jobs.sh)" --target "${targets[@]/%/_fuzz}" -- --quiet || { echo "0 passed, 1 failed"; exit 1; }
done

# An input that takes ten seconds or a gibibyte is a finding, too: all of them are small. What comes from clients may be 64 KiB, and is
# held to a budget of time by its length (tests/fuzz/fuzz.h), so that costs that grow with the square of a length show.
limits=(-timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=512)
long_targets=" batch batch_request chat completions http multipart token_routes "
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}

# run TARGET: searches, and prints the line or the finding of the target. The exit status says whether it passed.
run() {
  local target=$1 log=build/fuzz/$1.log max_len=4096 words=() common
  local corpus=build/fuzz/corpus/$target findings=build/fuzz/findings/$target
  rm -f "$log.again"
  mkdir -p "$corpus" "$findings"
  if [ -f "tests/fuzz/$target.dict" ]; then words=(-dict="tests/fuzz/$target.dict"); fi
  if [[ $long_targets == *" $target "* ]]; then max_len=65536; fi
  common=("${limits[@]}" -max_len="$max_len" -print_final_stats=1 -artifact_prefix="$findings/" "$corpus" "tests/fuzz/corpus/$target")
  if "build/$search/fuzz/${target}_fuzz" "${limit[@]}" "${words[@]}" "${common[@]}" >"$log" 2>&1 &&
    { [ "$search" = asan ] || "build/asan/fuzz/${target}_fuzz" -runs=0 "${common[@]}" >"$log.again" 2>&1; }; then
    printf '%-16s %s inputs, %s a second\n' "$target" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
      "$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")"
    return 0
  fi
  if [ -s "$log.again" ]; then log=$log.again; fi
  echo "$target: FINDING; the end of $log:"
  grep -vE '^#[0-9]+' "$log" | tail -n 60
  return 1
}

# With job control each target runs in a process group of its own, which the trap ends with this script.
set -m
trap 'for job in $(jobs -p); do kill -- "-$job" 2>/dev/null || true; done' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

passed=0
failed=0
# A target for each processor runs at a time, and prints all of its lines at its end.
await_one() { if wait -n; then passed=$((passed + 1)); else failed=$((failed + 1)); fi; }
begun=0
for target in "${targets[@]}"; do
  if [ $((begun - passed - failed)) -ge "$(nproc)" ]; then await_one; fi
  { said=$(run "$target") && passes=1 || passes=0; echo "$said"; [ $passes -eq 1 ]; } &
  begun=$((begun + 1))
done
while [ $((passed + failed)) -lt "$begun" ]; do await_one; done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
