#!/usr/bin/env bash
# Trains the full model on a machine with a GPU, exports and evaluates it, and leaves six small files in OUT. Needs no network.
# Usage: tools/train/gpu_run.sh OUT MINUTES WORKERS [OPTION OF train.py]...
#   MINUTES  of training, start included; export and evaluation take about 10 seconds more, and after 30 seconds they are stopped
#   WORKERS  processes that write the examples
# A second run improves the result of a first: tools/train/gpu_run.sh OUT 1.5 13 --weights FIRST/weights_float32.safetensors --first-stage long
# Variables: PYTHON (python3), RECIPE (full), COUNT (held-out prompts of each task: 200).
# SIGTERM ends the training early; what there is gets exported and evaluated.
set -u
cd "$(dirname "$0")/../.."
if [ $# -lt 3 ]; then sed -n '2,9s/^# \?//p' "$0" >&2; exit 2; fi
out=$(mkdir -p "$1" && cd "$1" && pwd)
minutes=$2 workers=$3
shift 3
python=${PYTHON:-python3} recipe=${RECIPE:-full} count=${COUNT:-200}
seconds=$(awk "BEGIN { print int(60 * $minutes) }")
work=$(mktemp -d /tmp/tandem-tiny.XXXXXX)
model=$work/tandem-tiny
export TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}

mkdir -p "$work/tokenizer"
cp models/tandem-tiny/tokenizer.json models/tandem-tiny/tokenizer_config.json "$work/tokenizer/"  # spares training one

timeout -k 10 $((seconds + 30)) "$python" tools/train/train.py "$work" --recipe "$recipe" --budget-minutes "$minutes" --workers "$workers" \
  --compile --export "$model" "$@" >"$out/log.txt" 2>&1 &
training=$!
trap 'kill -TERM "$training" 2>/dev/null' TERM INT

# Both start now, make their prompts, and wait for the model. Each ends in time whatever happens.
timeout -k 2 $((seconds + 30)) "$python" tools/train/evaluate.py --model "$model-float32" --wait $((seconds + 20)) --dtype float32 --count "$count" \
  --together --out "$out/accuracy_float32.json" >"$work/float32.txt" 2>&1 &
exact=$!
timeout -k 2 $((seconds + 30)) "$python" tools/train/evaluate.py --model "$model" --wait $((seconds + 20)) --count "$count" --show 4 \
  --together --out "$out/accuracy_bfloat16.json" >"$out/answers.txt" 2>&1 &
rounded=$!

status=0
while kill -0 "$training" 2>/dev/null; do  # a signal interrupts `wait`
  wait "$training"
  status=$?
done
tail -n 60 "$out/log.txt"
echo "train.py ended with status $status"
[ ! -e "$work/compile.txt" ] || tail -n 5 "$work/compile.txt"
if [ ! -d "$model" ] && [ -e "$work/state.pt" ]; then  # it was killed: the last saved state is better than nothing
  "$python" tools/train/export.py "$work" "$model-float32" --recipe "$recipe" --dtype float32
  "$python" tools/train/export.py "$work" "$model" --recipe "$recipe"
fi
if [ ! -d "$model" ]; then
  kill -9 "$exact" "$rounded"
  exit 1
fi
failed=0
tar -C "$work" -cf "$out/tandem-tiny.tar" tandem-tiny || failed=1
cp "$model-float32/model.safetensors" "$out/weights_float32.safetensors" || failed=1
wait "$rounded" || failed=1
wait "$exact" || failed=1
grep -v '^  ' "$out/answers.txt"  # the table without the wrong answers
[ -e "$out/accuracy_float32.json" ] || cat "$work/float32.txt"
exit "$failed"
