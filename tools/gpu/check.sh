#!/usr/bin/env bash
# Checks the CUDA back end on a machine with a GPU, stage by stage. Each stage has its own time limit and prints its result as one line
# of JSON as soon as it has it; a stage that fails stops no other. The last line is the summary.
# Usage: tools/gpu/check.sh [--dry-run] [--device NAME] [--binaries FOLDER] [--limit [STAGE=]SECONDS]... [--quick] [--scratch FOLDER] [STAGE]...
#   STAGE        env    what this machine has: GPU, driver, processors, memory, and what tandem says of it
#                build  installs nvcc 13 if there is none, builds the program, the back end and its tests, and copies them with
#                       the libraries that they load to build/gpu-bundle, to be run where nothing can be built
#                ops    every op of the device against the host's kernels and double precision, with the plain kernels, with the
#                       fast kernels, and with cuBLASLt if it is found (TANDEM_CUBLASLT=FILE names it); and how far products differ.
#                       On a GPU of compute capability 9.0 attention also with the prompts by FlashInfer's kernels for Hopper
#                link   copies between the tiers: all bytes arrive; GB/s one way and both ways at once
#                e2e    golden models and two tiers over HTTP
#                speed  `tandem bench kernels` on the GPU, and beside it the same operations by PyTorch if a python3 has it; attention
#                       of prompts by each of FlashInfer's kernels if there are two
#                model  a random 8B model: from start to first token, decoding at batch 1, 16 and 64, a prompt of 4,096 tokens,
#                       steps beside offloaded requests, what the driver says, and a profile of two tiers
#                sanitizer  compute-sanitizer's memcheck over some of the ops' tests
#                (default: all of them, in this order)
#   --device     which GPU: cuda (default), cuda:N or a back end's file
#   --limit      time limit of a stage, or of every stage; `speed` and `model` then measure less
#   --quick      `speed`: a few rows of each kind, of the 8B shape
#   --scratch    where `model` writes 16 GB (default: /dev/shm, /tmp or build, the first with room)
#   --dry-run    without a GPU: over the host's CUDA of the tests. Shows that this script works, nothing of a GPU
#   --binaries   where tandem, libtandem_cuda.so and device_ops_test lie (default: build/dev), such as a copy of build/gpu-bundle
# Output of the stages: build/gpu-check/STAGE.log; results: build/gpu-check/results.jsonl. Exit code: 0 all well, 1 a stage failed, 2 usage.
set -uo pipefail
cd "$(dirname "$0")/../.."

dry_run=0
device=cuda
binaries=build/dev
stages=()
declare -A limits=([env]=60 [build]=1800 [ops]=300 [link]=120 [e2e]=900 [speed]=150 [model]=240 [sanitizer]=90)
quick=0
scratch=
set_limit() {
  local stage=${1%%=*} seconds=${1##*=}
  if ! [[ $seconds =~ ^[1-9][0-9]*$ ]] || { [ "$stage" != "$1" ] && [ -z "${limits[$stage]:-}" ]; }; then
    echo "check.sh: --limit '$1' is not a number of seconds, or STAGE=SECONDS (--help)" >&2
    exit 2
  fi
  if [ "$stage" != "$1" ]; then limits[$stage]=$seconds; return; fi
  for stage in "${!limits[@]}"; do limits[$stage]=$seconds; done
}
while [ $# -gt 0 ]; do
  case "$1" in
    --dry-run) dry_run=1 ;;
    --device) device=${2:-}; shift ;;
    --binaries) binaries=${2:-}; shift ;;
    --limit) set_limit "${2:-}"; shift ;;
    --quick) quick=1 ;;
    --scratch) scratch=${2:-}; shift ;;
    -h|--help) sed -n '2,25s/^# \?//p' "$0"; exit 0 ;;
    env|build|ops|link|e2e|speed|model|sanitizer) stages+=("$1") ;;
    *) echo "check.sh: unknown argument '$1' (stages: env build ops link e2e speed model sanitizer; --help)" >&2; exit 2 ;;
  esac
  shift
done
if [ -z "$device" ] || [ -z "$binaries" ]; then
  echo "check.sh: --device and --binaries need a value (--help)" >&2
  exit 2
fi
if [ ${#stages[@]} -eq 0 ]; then stages=(env build ops link e2e speed model sanitizer); fi
binaries=$(realpath -m "$binaries")
plugin_target=tandem_cuda
if [ "$dry_run" -eq 1 ]; then
  device=$binaries/libtandem_cuda_on_host.so
  plugin_target="tandem_cuda_on_host_plugin tandem_cublaslt_on_host"
  export TANDEM_CUBLASLT=$binaries/libtandem_cublaslt_on_host.so
  export CUDA_ON_HOST_HOPPER=1
fi
# cuBLASLt as Python packages bring it along (torch's own, or nvidia-cublas).
if [ "$dry_run" -eq 0 ] && [ -z "${TANDEM_CUBLASLT:-}" ] && [ "${TANDEM_CUDA_PRODUCTS:-auto}" != plain ]; then
  library=$(python3 -c '
import glob, importlib.util
nvidia = importlib.util.find_spec("nvidia")
folders = nvidia.submodule_search_locations if nvidia else []
print(next((file for folder in folders for file in glob.glob(folder + "/*/lib/libcublasLt.so.13")), ""))' 2>/dev/null)
  if [ -n "$library" ]; then export TANDEM_CUBLASLT=$library; fi
fi
out=build/gpu-check
mkdir -p "$out"
# Our programs with the libraries that a bundle brings along, which are not for this machine's Python.
tandem=$out/tandem
ops=$out/device_ops_test
for program in tandem device_ops_test; do
  printf '#!/bin/sh\nexport LD_LIBRARY_PATH="%s/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"\nexec "%s/%s" "$@"\n' "$binaries" "$binaries" "$program" >"$out/$program"
  chmod +x "$out/$program"
done
results=$out/results.jsonl
: >"$results"

# Every stage writes what it found as JSON to stdout; the rest goes to stderr, which becomes the stage's log.
stage_env() {
  python3 - "$tandem" <<'PYTHON'
import json, os, platform, shutil, subprocess, sys

def said(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        return [line.strip() for line in (done.stdout or done.stderr).splitlines() if line.strip()]
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"{command[0]}: {error}"]

memory = {line.split(":")[0]: line.split()[1] for line in open("/proc/meminfo")}
print(json.dumps({
    "gpus": said("nvidia-smi", "--query-gpu=name,driver_version,memory.total,memory.free,pcie.link.gen.current,pcie.link.width.current", "--format=csv,noheader")
            if shutil.which("nvidia-smi") else [],
    "tandem": said(sys.argv[1], "--version", "-v"),
    "libc": " ".join(platform.libc_ver()), "cpus": len(os.sched_getaffinity(0)), "memory_gib": round(int(memory["MemTotal"]) / 2**20, 1),
}))
PYTHON
  [ "$dry_run" -eq 1 ] || "$tandem" --version -v | grep -q '^cuda:[0-9]'
}

stage_build() {
  local cuda=ON
  if [ "$dry_run" -eq 1 ]; then cuda=AUTO; fi
  if [ "$dry_run" -eq 0 ] && ! nvcc --version 2>/dev/null | grep 'release 13\.' >/dev/null; then tools/gpu/install_nvcc.sh >&2 || return 1; fi
  { cmake --preset dev -DTANDEM_CUDA=$cuda -UTANDEM_CUDA_ARCHITECTURES && cmake --build build/dev -j "$(scripts/jobs.sh)" --target tandem $plugin_target device_ops_test; } >&2 || return 1
  local bundle=build/gpu-bundle file
  rm -rf "$bundle"
  mkdir -p "$bundle/lib"
  for file in tandem device_ops_test libtandem_cuda.so libtandem_cuda_on_host.so libtandem_cublaslt_on_host.so; do
    [ -e "build/dev/$file" ] || continue
    strip -o "$bundle/$file" "build/dev/$file"
    # All but the C library and the driver, which are the other machine's own.
    ldd "build/dev/$file" | awk '$3 ~ /^\// {print $3}' | grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|libcuda)\.so' | xargs -r cp -Lnt "$bundle/lib"
  done
  echo "{\"bundle_mib\": $(du -sm "$bundle" | cut -f1)}"
}

# Whether FlashInfer's kernels for Hopper can attend prompts.
has_hopper() { [ "$dry_run" -eq 1 ] || "$tandem" --version -v | grep -q '^cuda:[0-9].*, sm_90,'; }

# Plain and fast kernels run all tests; the library only if the comparison of products has found it.
stage_ops() {
  local reports code=0 differences
  reports=$(mktemp -d)
  for kind in plain fast library hopper; do
    if [ $kind = library ] && ! grep -q '^{"library_differs' "$reports/plain.txt"; then continue; fi
    if [ $kind = hopper ] && ! has_hopper; then continue; fi
    local kernels=fast products=plain prompts=ampere tests=-Link.*
    if [ $kind = plain ]; then kernels=plain; fi
    if [ $kind = library ]; then products=library; fi
    if [ $kind = hopper ]; then prompts=hopper tests=AttentionOps.*; fi
    TANDEM_TEST_DEVICE=$device TANDEM_CUDA_KERNELS=$kernels TANDEM_CUDA_PRODUCTS=$products TANDEM_CUDA_PREFILL=$prompts "$ops" \
      --gtest_filter="${TANDEM_OPS_FILTER:-$tests}" --gtest_output="json:$reports/$kind" >"$reports/$kind.txt" 2>&1 || code=1
    cat "$reports/$kind.txt" >&2
  done
  python3 - "$reports" <<'PYTHON'
import json, pathlib, sys

folder = pathlib.Path(sys.argv[1])
found = {"passed": 0, "failed": []}
for products in ("plain", "fast", "library", "hopper"):
    text = folder / f"{products}.txt"
    if not text.exists():
        found[products] = "not found: see the log"
        continue
    try:
        report = json.load(open(folder / products))
        ran = [(f"{suite['name']}.{test['name']}", test) for suite in report["testsuites"] for test in suite["testsuite"]]
        failed = [name for name, test in ran if "failures" in test]
        passed = len([name for name, test in ran if test["result"] == "COMPLETED"]) - len(failed)
    except (OSError, ValueError):
        passed, failed = 0, ["the program ended early: see the log"]
    found[products] = {"passed": passed, "failed": failed}
    found["passed"] += passed
    found["failed"] += [f"{products}: {name}" for name in failed]
    for line in text.read_text(errors="replace").splitlines():
        if line.startswith('{"library_differs'):
            found |= json.loads(line)
print(json.dumps(found))
PYTHON
  rm -rf "$reports"
  return $code
}

stage_link() {
  local text
  text=$(TANDEM_TEST_DEVICE=$device "$ops" --gtest_filter=Link.*)
  local code=$?
  echo "$text" >&2
  grep -m 1 '^{"link_gb_per_s"' <<<"$text" || echo '{}'
  return $code
}

# A machine without a network has no build/venv: then a python3 that has the modules, or finds them in the wheels in .whl.
stage_e2e() {
  modules_of_e2e() { python3 -c 'import httpx, openai, pytest' 2>/dev/null; }
  local python=build/venv/bin/python wheel
  if [ ! -x "$python" ] && ! modules_of_e2e && compgen -G '.whl/*.whl' >/dev/null; then
    mkdir -p build/wheels
    for wheel in .whl/*.whl; do python3 -m zipfile -e "$wheel" build/wheels >&2; done
    export PYTHONPATH=$PWD/build/wheels${PYTHONPATH:+:$PYTHONPATH}
  fi
  if [ ! -x "$python" ] && modules_of_e2e; then
    python=python3
  elif [ ! -x "$python" ]; then
    { python3 -m venv build/venv && build/venv/bin/pip install --quiet --no-deps -r tests/e2e/requirements.txt; } >&2 || return 1
  fi
  if [ "$dry_run" -eq 1 ]; then
    unset TANDEM_CUBLASLT  # tests name the library themselves, and look for it beside the program
    ln -sf "$device" "${device%/*}/libtandem_cublaslt_on_host.so" "$out"
  fi
  local text
  text=$(TANDEM_TEST_DEVICE=$device TANDEM_BINARY=$tandem "$python" -B -m pytest -q -p no:cacheprovider -k "not check_sh" tests/e2e/test_cuda.py)
  local code=$?
  echo "$text" >&2
  python3 -c 'import json, sys; print(json.dumps({"pytest": sys.argv[1]}))' "$(tail -n 1 <<<"$text")"
  return $code
}

stage_speed() {
  local shapes="8B 34B" peers_device=cuda sizes="" python candidate
  if [ "$quick" -eq 1 ]; then shapes=8B sizes=--quick; fi
  if [ "$dry_run" -eq 1 ]; then shapes=tiny sizes=--tiny peers_device=cpu; fi
  rm -f "$out/speed.json" "$out/peers.jsonl"
  # Both write each row as soon as it is measured, and leave out rows for which the time is over.
  # shellcheck disable=SC2086
  TANDEM_CUDA_ALGORITHMS=${TANDEM_CUDA_ALGORITHMS:-timed} timeout $((limit * 6 / 10)) "$tandem" bench kernels --device "$device" --shapes $shapes ${sizes%--tiny} --limit $((limit * 5 / 10)) --json "$out/speed.json" >&2
  local code=$? prompts
  rm -f "$out"/prompts-*.json
  if has_hopper; then
    for prompts in ampere hopper; do
      TANDEM_CUDA_PREFILL=$prompts timeout $((limit / 15)) "$tandem" bench kernels --device "$device" --shapes "${shapes%% *}" ${sizes%--tiny} \
        --only "attention prefill" --limit $((limit / 20)) --json "$out/prompts-$prompts.json" >&2 || code=1
    done
  fi
  for candidate in "${TANDEM_PEERS_PYTHON:-python3}" /opt/torch/.venv/bin/python; do
    if "$candidate" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null; then python=$candidate; break; fi
  done
  if [ -n "${python:-}" ]; then
    # shellcheck disable=SC2086
    timeout $((limit * 25 / 100)) "$python" tools/gpu/peers.py --device $peers_device $sizes --limit $((limit * 18 / 100)) | tee "$out/peers.jsonl" >&2
  else
    echo "no python3 has torch: nothing to compare with (TANDEM_PEERS_PYTHON names another one)" >&2
  fi
  python3 tools/gpu/speed_table.py "$out/speed.json" "$out/peers.jsonl" "$out"/prompts-*.json
  return $code
}

# The whole model; of the dry run a tiny one.
stage_model() {
  local folder=$scratch place sizes=(--preset 8B)
  export TANDEM_CUDA_PREFILL=${TANDEM_CUDA_PREFILL:-auto} TANDEM_CUDA_ALGORITHMS=${TANDEM_CUDA_ALGORITHMS:-timed}
  if [ "$dry_run" -eq 1 ]; then
    sizes=(--preset tiny "--shape=--layers 1 --hidden 64 --intermediate 128 --heads 2 --kv-heads 1" --device-memory 256MiB --host-memory 64MiB --batches 1,2 --prompt 16 --output 4 --tiers 2:4:16 --window 0.2 --profile 1)
    export TANDEM_CUDA_PRODUCTS=plain  # a profile with the host's cuBLASLt takes 15 s instead of 6
  fi
  for place in /dev/shm /tmp build; do
    if [ -z "$folder" ] && { [ "$dry_run" -eq 1 ] || [ "$(df --output=avail -BG "$place" | tail -n 1 | tr -dc 0-9)" -ge 20 ]; }; then
      folder=$(mktemp -d "$place/tandem-gpu-check.XXXXXX")
    fi
  done
  if [ -z "$folder" ]; then
    echo "neither /dev/shm nor /tmp nor build has 20 GB free: name another folder with --scratch" >&2
    return 1
  fi
  python3 tools/gpu/measure_model.py "$tandem" --device "$device" --scratch "$folder" --limit $((limit - limit / 10 - 5)) "${sizes[@]}"
  local code=$?
  cp "$folder/serve.log" "$out/model-serve.log" 2>/dev/null
  [ -n "$scratch" ] || rm -rf "$folder"
  return $code
}

# A subset: under memcheck everything is tens of times slower.
stage_sanitizer() {
  local checker filter='DenseOps.GateAndUp:RowOps.RmsNorm:RowOps.Gathers*:Rope.*:SampleOps.*:AttentionOps.KvThat*:AttentionOps.ALong*'
  checker=$(command -v compute-sanitizer || ls -d /usr/local/cuda*/bin/compute-sanitizer /opt/*/bin/compute-sanitizer 2>/dev/null | head -n 1)
  if [ "$dry_run" -eq 1 ]; then
    checker=
    filter=RowOps.RmsNorm
  elif [ -z "$checker" ]; then
    echo '{"skipped": "compute-sanitizer is not installed"}'
    return 0
  fi
  local text
  # shellcheck disable=SC2086
  text=$(TANDEM_TEST_DEVICE=$device TANDEM_CUDA_PRODUCTS=${TANDEM_SANITIZER_PRODUCTS:-plain} timeout $((limit - 5)) \
    ${checker:+$checker --tool memcheck --target-processes all --error-exitcode 9} "$ops" --gtest_filter="${TANDEM_SANITIZER_FILTER:-$filter}" 2>&1)
  local code=$?
  echo "$text" >&2
  python3 -c '
import json, re, sys
text = sys.stdin.read()
errors = re.findall(r"ERROR SUMMARY: (\d+)", text)
print(json.dumps({"passed": len(re.findall(r"\[       OK \]", text)), "memory_errors": int(errors[-1]) if errors else None}))' <<<"$text"
  return $code
}

failed=()
for stage in "${stages[@]}"; do
  begin=$(date +%s.%N)
  export -f "stage_$stage" has_hopper
  limit=${limits[$stage]}
  export tandem ops device dry_run plugin_target limit quick scratch out
  found=$(timeout --kill-after=10 "${limits[$stage]}" bash -uo pipefail -c "stage_$stage" 2>"$out/$stage.log")
  code=$?
  why=
  if [ $code -eq 124 ] || [ $code -eq 137 ]; then why="ran longer than ${limits[$stage]} s"; fi
  if [ $code -ne 0 ]; then failed+=("$stage"); fi
  python3 -c '
import json, sys
stage, code, begin, end, device, why, found, log = sys.argv[1:9]
result = {"stage": stage, "ok": code == "0", "seconds": round(float(end) - float(begin), 1), "device": device.rsplit("/", 1)[-1]}
try:
    result |= json.loads(found or "{}")
except ValueError:
    result["said"] = found[-500:]
if why:
    result["why"] = why
if code != "0":
    result["log"] = log
print(json.dumps(result))' "$stage" "$code" "$begin" "$(date +%s.%N)" "$device" "$why" "$found" "$out/$stage.log" | tee -a "$results"
done
printf '{"summary": "%d of %d stages passed", "failed": "%s", "dry_run": %s}\n' $((${#stages[@]} - ${#failed[@]})) ${#stages[@]} \
  "${failed[*]:-}" "$([ "$dry_run" -eq 1 ] && echo true || echo false)" | tee -a "$results"
[ ${#failed[@]} -eq 0 ]
