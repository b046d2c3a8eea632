#!/usr/bin/env bash
# Installs what is missing, builds Tandem and serves a model on http://127.0.0.1:8000.
# Usage: ./serve.sh [MODEL_DIR | FILE.gguf] [flags of tandem serve]
#   MODEL_DIR   a Hugging Face folder (config.json, *.safetensors, tokenizer); without it a tiny model with random weights
#               is made and served: enough to try the server, but its words are noise
#   flags       go to `tandem serve` as they are, such as --port 9000 or --api-key KEY; all of them:
#               ./build/release/tandem serve --help (after the first run)
# Environment: TANDEM_JOBS  compile jobs (default: cores, at most one per 2 GiB of free memory)
# Can be run again at any time: what is done already is not done twice. Ctrl-C stops the server.
set -euo pipefail
cd_from=$PWD
root=$(cd "$(dirname "$0")" && pwd)

say() { echo "serve.sh: $*"; }
give_up() {
  echo "serve.sh: $*" >&2
  exit 1
}

model=
case "${1:-}" in
  -h|--help) sed -n '2,9s/^# \?//p' "$root/serve.sh"; exit 0 ;;
  -*|'') ;;
  *)
    [ -e "$1" ] || give_up "there is no '$1'. Give a Hugging Face model folder (config.json and *.safetensors), a GGUF file, or nothing for the default model"
    model=$(realpath "$1")
    shift
    ;;
esac
cd "$root"

say "packages"
scripts/install_packages.sh build || give_up "could not install packages; the message above says which"

jobs=$(scripts/jobs.sh)
mkdir -p build
say "building (release, $jobs jobs; the first time takes minutes)"
cmake --preset release >build/release.configure.log 2>&1 || {
  cat build/release.configure.log >&2
  give_up "cmake failed: read the message above; if a package changed, delete build/release and run again"
}
cmake --build build/release --target tandem -j "$jobs" || give_up "the build failed: mend the first error above"

if [ -z "$model" ]; then
  model=$root/build/models/default
  if [ ! -f "$model/config.json" ]; then
    say "making the default model (tiny, random weights) in build/models/default"
    # Made beside and moved: an interrupted run leaves no half model behind.
    rm -rf "$model" "$model.partial"
    mkdir -p "$root/build/models"
    build/release/tandem model make --preset tiny --seed 1 "$model.partial" || give_up "could not make the default model"
    mv "$model.partial" "$model"
  fi
  # A model of 5 MiB needs no gigabytes of KV; who gives a size, or a file that may have one, gets it.
  case "$* " in
    *--device-memory*|*--gpu-memory-utilization*|*--config*) ;;
    *) [ -n "${TANDEM_DEVICE_MEMORY:-}${TANDEM_CONFIG:-}" ] || set -- --device-memory 512MiB "$@" ;;
  esac
  say "the default model has RANDOM WEIGHTS: its words are noise. ./serve.sh MODEL_DIR serves a real one"
fi

say "starting: build/release/tandem serve $model $*"
cd "$cd_from"
exec "$root/build/release/tandem" serve "$model" "$@"
