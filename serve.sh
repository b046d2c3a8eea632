#!/usr/bin/env bash
# Installs what is missing, builds Tandem and serves a model on http://127.0.0.1:8000.
# Usage: ./serve.sh [MODEL_DIR | FILE.gguf | ORG/NAME] [flags of tandem serve]
#   MODEL_DIR   a Hugging Face folder (config.json, *.safetensors, tokenizer); without it models/tandem-tiny is served, which
#               adds, copies and looks up (docs/default-model.md) and knows little else
#   ORG/NAME    a model of the Hugging Face hub, which is downloaded (docs/models.md); a folder of that name comes first
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
  -h|--help) sed -n '2,10s/^# \?//p' "$root/serve.sh"; exit 0 ;;
  -*|'') ;;
  *)
    if [ -e "$1" ]; then
      model=$(realpath "$1")
    elif [[ $1 =~ ^[A-Za-z0-9][^/]*/[^/@:]+([@:].*)?$ ]]; then
      model=$1  # a name; tandem says if there is no such model
    else
      give_up "there is no '$1'. Give a Hugging Face model folder (config.json and *.safetensors), a GGUF file, a name such as ORG/NAME, or nothing for the default model"
    fi
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

say "starting: build/release/tandem serve${model:+ $model}${*:+ $*}"
cd "$cd_from"
exec "$root/build/release/tandem" serve ${model:+"$model"} "$@"
