#!/usr/bin/env bash
# Measures Tandem beside llama.cpp, OpenVINO GenAI and oneDNN on this machine and prints tables of ratios.
# Usage: scripts/bench.sh [--quick] [--passes N] [--no-peers] [--model DIR]
#   --quick      one round instead of two, batches 1 and 16 only
#   --passes N   passes of each program in a round (default 3); kernels take three at least
#   --no-peers   Tandem alone
#   --model DIR  instead of the random 1.1B model that is made in build/models/1B
# Run it on an idle machine: nothing else may compile or serve meanwhile. Results: build/bench/*.json, and a plot, roofline.svg.
set -euo pipefail
cd "$(dirname "$0")/.."

passes=3
rounds=(1 2)
batches=(1 16 32)
long_batches=(1 8 32)  # with prompts of 1024 tokens, beside OpenVINO
peers=1
model=build/models/1B
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) rounds=(1); batches=(1 16); long_batches=(1 8) ;;
    --passes)
      passes=${2:?--passes needs a number}
      [[ $passes =~ ^[1-9][0-9]?$ ]] || { echo "bench.sh: --passes takes 1 to 99, not '$passes'" >&2; exit 2; }
      shift ;;
    --no-peers) peers=0 ;;
    --model) model=${2:?--model needs a folder}; shift ;;
    -h|--help) sed -n '2,8s/^# \?//p' "$0"; exit 0 ;;
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
    build/peers-venv/bin/python bench/peers/run_llama_cpp.py --types F16,Q8_0 --threads "$threads" \
      --batches "$(IFS=,; echo "${batches[*]}")" --rounds "$passes" -o "build/bench/llama_cpp.$round.json"
  fi
  "$tandem" bench model "$model" --prompt 1024 --output 32 --batch "${long_batches[@]}" --passes "$passes" \
    --json "build/bench/long.$round.json"
  if [ "$peers" -eq 1 ]; then
    for mlp in fused apart; do
      build/peers-venv/bin/python bench/peers/run_openvino.py --threads "$threads" --prompt 1024 --steps 32 --mlp "$mlp" \
        --batches "$(IFS=,; echo "${long_batches[*]}")" --rounds "$passes" -o "build/bench/openvino.$mlp.$round.json"
    done
  fi
done
"$tandem" bench kernels --threads "$threads" --passes "$((passes > 3 ? passes : 3))" --json build/bench/kernels.json
scripts/roofline.py build/bench/kernels.json -o build/bench/roofline.svg
if [ "$peers" -eq 1 ]; then
  OMP_NUM_THREADS=$threads build/release/bench/onednn_gemm 1 16 64 256 512 >build/bench/onednn.json
fi
"$tandem" bench frontend
scripts/bench_start.py "$tandem" "$model" --passes 5 -o build/bench/start.json
python3 scripts/bench_table.py build/bench
