#!/usr/bin/env bash
# Trains the full model on a machine with a GPU, exports and evaluates it, and leaves a few small files in OUT. Needs no network.
# Usage: tools/train/gpu_run.sh OUT MINUTES WORKERS
#   MINUTES  of training, start and compilation included; export and evaluation take about half a minute more
#   WORKERS  processes that write the examples
# Variables: PYTHON (python3), RECIPE (full), COUNT (held-out prompts of each task: 250), WORK (folder for the state: a new one in /tmp;
# a folder of an earlier run with the same MINUTES continues it).
# SIGTERM ends the training early; what there is gets exported and evaluated.
set -u
cd "$(dirname "$0")/../.."
if [ $# -ne 3 ]; then sed -n '2,9s/^# \?//p' "$0" >&2; exit 2; fi
out=$(mkdir -p "$1" && cd "$1" && pwd)
minutes=$2 workers=$3
python=${PYTHON:-python3} recipe=${RECIPE:-full} count=${COUNT:-250}
work=${WORK:-$(mktemp -d /tmp/tandem-tiny.XXXXXX)}
export TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}

mkdir -p "$work/tokenizer"
# What tools/train/tokenizer.py would write again, in a few seconds.
[ -e "$work/tokenizer/tokenizer.json" ] || cp models/tandem-tiny/tokenizer.json models/tandem-tiny/tokenizer_config.json "$work/tokenizer/"

"$python" tools/train/train.py "$work" --recipe "$recipe" --budget-minutes "$minutes" --workers "$workers" --compile >"$out/log.txt" 2>&1 &
training=$!
trap 'kill -TERM "$training" 2>/dev/null' TERM INT
status=1
while kill -0 "$training" 2>/dev/null; do  # a signal interrupts `wait`
  wait "$training"
  status=$?
done
echo "train.py ended with status $status"
tail -n 40 "$out/log.txt"
[ -e "$work/state.pt" ] || exit 1

failed=0
model=$work/tandem-tiny
"$python" tools/train/export.py "$work" "$model" --recipe "$recipe" || failed=1
"$python" tools/train/export.py "$work" "$model-float32" --recipe "$recipe" --dtype float32 || failed=1
tar -C "$work" -cf "$out/tandem-tiny.tar" tandem-tiny || failed=1
cp "$model-float32/model.safetensors" "$out/weights_float32.safetensors" || failed=1

"$python" tools/train/evaluate.py --model "$model-float32" --dtype float32 --count "$count" --out "$out/accuracy_float32.json" >/dev/null &
exact=$!
"$python" tools/train/evaluate.py --model "$model" --count "$count" --show 4 --out "$out/accuracy_bfloat16.json" >"$out/answers.txt" || failed=1
grep -v '^  ' "$out/answers.txt"  # the table without the wrong answers
wait "$exact" || failed=1
exit "$failed"
