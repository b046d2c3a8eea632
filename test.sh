#!/usr/bin/env bash
# Builds Tandem and runs all of its tests on this machine.
# Usage: ./test.sh [--preset dev|asan|tsan] [--unit | --e2e] [--short] [--help]
#   --preset NAME   what to build and test: dev (default), asan (AddressSanitizer and UBSan), tsan (ThreadSanitizer)
#   --unit          only the C++ tests
#   --e2e           only the end-to-end tests (Python, real HTTP)
#   --short         of the end-to-end tests only the core ones, for slow builds such as the sanitizers'
# Environment: TANDEM_SHARED  folder with golden models, tokenizers and templates (default ../shared); tests that need it
#                             are skipped without it, or fail where CI=true
#              TANDEM_JOBS    compile jobs (default: cores, at most one per 2 GiB of free memory)
# The last line reads `N passed, N failed`. Exit code: 0 all passed, 1 something failed, 2 usage.
set -euo pipefail
cd "$(dirname "$0")"

preset=dev
unit=1
e2e=1
lint=1
pytest_options=()
while [ $# -gt 0 ]; do
  case "$1" in
    --preset) preset=${2:-}; shift ;;
    --preset=*) preset=${1#*=} ;;
    --unit) e2e=0 ;;
    --e2e) unit=0; lint=0 ;;
    --short) pytest_options+=(-m core) ;;
    -h|--help) sed -n '2,11s/^# \?//p' "$0"; exit 0 ;;
    *) echo "test.sh: unknown argument '$1'; ./test.sh --help lists them" >&2; exit 2 ;;
  esac
  shift
done
case "$preset" in
  dev) ;;
  asan|tsan) lint=0 ;;
  *) echo "test.sh: unknown preset '$preset' (dev, asan or tsan)" >&2; exit 2 ;;
esac
if [ "$unit" -eq 0 ] && [ "$e2e" -eq 0 ]; then
  echo "test.sh: --unit and --e2e exclude each other; leave both out to run everything" >&2
  exit 2
fi

started=$SECONDS
stage_started=$SECONDS
stage=
begin() {
  stage=$1
  stage_started=$SECONDS
  echo "== $stage"
}
end() { echo "== $stage: done in $((SECONDS - stage_started)) s"; }
# give_up MESSAGE: for what stops all tests from running; the tests themselves are counted instead.
give_up() {
  echo "== $stage: FAILED after $((SECONDS - stage_started)) s" >&2
  echo "test.sh: $1" >&2
  echo "0 passed, 1 failed"
  exit 1
}

export TANDEM_SHARED=${TANDEM_SHARED:-../shared}
TANDEM_SHARED=$(realpath -m "$TANDEM_SHARED")
if [ ! -d "$TANDEM_SHARED" ]; then
  echo "note: $TANDEM_SHARED is missing, so tests on its models, tokenizers and templates cannot run; set TANDEM_SHARED"
fi
build=build/$preset
reports=$PWD/$build/reports
problems=()

begin "packages"
scripts/install_packages.sh build test || give_up "could not install packages: read the message above"
end

mkdir -p build
begin "configure ($preset)"
cmake --preset "$preset" >"$build.configure.log" 2>&1 || {
  cat "$build.configure.log" >&2
  give_up "cmake failed: read the message above; if a package changed, delete $build and run again"
}
end

jobs=$(scripts/jobs.sh)
begin "build ($preset, $jobs jobs)"
targets=()
if [ "$unit" -eq 0 ]; then targets=(--target tandem text_driver tandem_cuda_on_host_plugin tandem_cublaslt_on_host device_ops_test); fi
cmake --build "$build" -j "$jobs" "${targets[@]}" -- --quiet || give_up "the build failed: mend the first error above"
end

if [ "$lint" -eq 1 ]; then
  begin "lint"
  scripts/lint.sh || problems+=("lint: read its messages above")
  end
fi

rm -rf "$reports"
mkdir -p "$reports/gtest"
# Sanitizer reports end the program; TSan cannot map its shadow where addresses are randomised further than it knows.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-second_deadlock_stack=1:halt_on_error=1}
run_as=()
if [ "$preset" = tsan ] && setarch -R true 2>/dev/null; then run_as=(setarch -R); fi

if [ "$unit" -eq 1 ]; then
  begin "unit tests ($preset)"
  GTEST_OUTPUT="xml:$reports/gtest/" "${run_as[@]}" ctest --test-dir "$build" -j "$(nproc)" --output-on-failure \
    --no-tests=error --output-junit "$reports/ctest.xml" || problems+=("unit tests: ctest --test-dir $build --rerun-failed --output-on-failure")
  end
fi

if [ "$e2e" -eq 1 ]; then
  begin "Python tools (build/venv)"
  python=/usr/bin/python3
  [ -x "$python" ] || python=python3
  wanted=$(sha256sum tests/e2e/requirements.txt | cut -d' ' -f1)
  if [ "$(cat build/venv/requirements.sha256 2>/dev/null)" != "$wanted" ]; then
    rm -rf build/venv
    "$python" -m venv build/venv || give_up "python3 -m venv failed: install python3-venv"
    build/venv/bin/pip install --quiet --disable-pip-version-check --no-deps -r tests/e2e/requirements.txt ||
      give_up "pip could not install tests/e2e/requirements.txt: check the network and run again"
    echo "$wanted" >build/venv/requirements.sha256
  fi
  end

  if [ "$preset" = dev ]; then  # they run no program of Tandem's
    begin "tests of the default model's tasks"
    build/venv/bin/python -B -m pytest -q -p no:cacheprovider --junitxml="$reports/pytest-train.xml" \
      --ignore tools/train/tests/test_training.py tools/train/tests ||  # that file needs PyTorch
      problems+=("tests of the default model's tasks: build/venv/bin/python -m pytest tools/train/tests")
    end
  fi

  begin "end-to-end tests ($preset)"
  beside=1  # they wait half of their time, with sanitizers less
  if [ "$preset" = dev ]; then beside=2; fi
  TANDEM_BINARY="$PWD/$build/tandem" "${run_as[@]}" build/venv/bin/python -B -m pytest -q -p no:cacheprovider -n "$(($(nproc) + beside))" --dist worksteal \
    --junitxml="$reports/pytest.xml" "${pytest_options[@]}" tests/e2e || problems+=("end-to-end tests: ./test.sh --e2e --preset $preset")
  end
fi

echo "== result ($preset, $((SECONDS - started)) s)"
report=$(/usr/bin/env python3 -B scripts/count_tests.py "$reports")
read -r passed failed skipped <<<"$(tail -n 1 <<<"$report")"
sed '$d' <<<"$report"
if [ "$failed" -eq 0 ]; then failed=${#problems[@]}; fi  # lint, or a runner that failed without a failed test
if [ "$skipped" -gt 0 ]; then echo "$skipped skipped"; fi
for problem in "${problems[@]}"; do echo "to fix: $problem"; done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
