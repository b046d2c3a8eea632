#!/usr/bin/env bash
# Installs the peers that Tandem is measured beside: llama.cpp (through llama-cpp-python, compiled for this machine) into
# build/peers-venv, and the oneDNN comparator's library. Usage: bench/peers/install.sh
# Compiling llama.cpp takes about ten minutes on two cores; done once, again only when requirements.txt changes.
set -euo pipefail
cd "$(dirname "$0")/../.."

scripts/install_packages.sh build test
venv=build/peers-venv
wanted=$(sha256sum bench/peers/requirements.txt | cut -d' ' -f1)
if [ "$(cat $venv/requirements.sha256 2>/dev/null)" = "$wanted" ]; then
  echo "peers: already installed in $venv"
  exit 0
fi
python=/usr/bin/python3
[ -x "$python" ] || python=python3
[ -x $venv/bin/python ] || "$python" -m venv $venv
began=$SECONDS
echo "peers: compiling llama.cpp (about ten minutes)"
# From source, or a wheel for the least common CPU would be measured; no vision parts, no server.
CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF" \
  CMAKE_BUILD_PARALLEL_LEVEL=$(scripts/jobs.sh) \
  $venv/bin/pip install --quiet --disable-pip-version-check --no-binary llama-cpp-python -r bench/peers/requirements.txt || {
  echo "peers: pip failed: check the network and the message above" >&2
  exit 1
}
echo "$wanted" >$venv/requirements.sha256
echo "peers: installed in $((SECONDS - began)) s"
