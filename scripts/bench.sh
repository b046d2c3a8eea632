#!/usr/bin/env bash
# Measures Tandem beside llama.cpp and oneDNN on this machine and prints one table of ratios.
# Usage: scripts/bench.sh [--quick] [--no-peers] [--model DIR]
#   --quick      one round instead of two, batches 1 and 16 only
#   --no-peers   Tandem alone (no llama.cpp, no oneDNN)
#   --model DIR  instead of the random 1.1B model that is made in build/models/1B
# Run it on an idle machine: nothing else may compile or serve meanwhile. Results: build/bench/*.json, and a plot, roofline.svg.
set -euo pipefail
cd "$(dirname "$0")/.."

passes=3
rounds=(1 2)
batches=(1 16 32)
peers=1
model=build/models/1B
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) rounds=(1); batches=(1 16) ;;
    --no-peers) peers=0 ;;
    --model) model=${2:?--model needs a folder}; shift ;;
    -h|--help) sed -n '2,7s/^# \?//p' "$0"; exit 0 ;;
    *) echo "bench.sh: unknown argument '$1'; --help lists them" >&2; exit 2 ;;
  esac
  shift
done

scripts/install_packages.sh build
mkdir -p build/bench
cmake --preset release >build/release.configure.log
cmake --build build/release --target tandem -j "$(scripts/jobs.sh)"
tandem=build/release/tandem
if [ ! -f "$model/config.json" ]; then
  "$tandem" model make --preset 1B --seed 1 "$model"
fi
threads=$(nproc)

if [ "$peers" -eq 1 ]; then
  bench/peers/install.sh
  scripts/install_packages.sh test
  cmake --build build/release --target onednn_gemm
fi

# Peers and Tandem in turn within one run: ratios hold when the machine's speed drifts.
for round in "${rounds[@]}"; do
  "$tandem" bench model "$model" --prompt 512 --output 128 --batch "${batches[@]}" --passes "$passes" \
    --json "build/bench/model.$round.json"
  if [ "$peers" -eq 1 ]; then
    build/peers-venv/bin/python bench/peers/run_llama_cpp.py --types F16 --threads "$threads" \
      --batches "$(IFS=,; echo "${batches[*]}")" --rounds "$passes" -o "build/bench/llama_cpp.$round.json"
  fi
done
"$tandem" bench kernels --threads "$threads" --passes "$passes" --json build/bench/kernels.json
scripts/roofline.py build/bench/kernels.json -o build/bench/roofline.svg
if [ "$peers" -eq 1 ]; then
  OMP_NUM_THREADS=$threads build/release/bench/onednn_gemm 1 16 64 256 512 >build/bench/onednn.json
fi
"$tandem" bench frontend
scripts/bench_start.py "$tandem" "$model" --passes 5 -o build/bench/start.json
python3 scripts/bench_table.py build/bench
