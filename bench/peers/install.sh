#!/usr/bin/env bash
# Installs the peers that Tandem is measured beside: llama.cpp (through llama-cpp-python, compiled for this machine) and
# OpenVINO GenAI into build/peers-venv, and the oneDNN comparator's library. Usage: bench/peers/install.sh [--avx2 | --server]
#   --avx2     only llama.cpp without AVX-512 and AMX, into build/peers-venv-avx2: the peer of TANDEM_ISA=avx2
#   --server   only llama.cpp's own server, build/peers/llama-server/bin/llama-server, for scripts/compare_servers.sh
# Compiling llama.cpp takes about ten minutes on two cores; an interrupted run goes on where it was. Nothing is done again
# until requirements.txt or this file changes.
set -euo pipefail
cd "$(dirname "$0")/../.."

venv=build/peers-venv
work=$PWD/build/peers
build=llama-build
features="-DGGML_NATIVE=ON"
others="llama-cpp-python"
case "${1-}" in
  "") ;;
  --avx2)
    venv=build/peers-venv-avx2
    build=llama-build-avx2
    others="llama-cpp-python|nncf|openvino"
    features="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON" ;;
  --server) ;;
  -h|--help) sed -n '2,7s/^# \?//p' bench/peers/install.sh; exit 0 ;;
  *) echo "install.sh: unknown argument '$1'; --help tells what it does" >&2; exit 2 ;;
esac
scripts/install_packages.sh build test
wanted=$(cat bench/peers/requirements.txt bench/peers/install.sh | sha256sum | cut -d' ' -f1)
if [ "${1-}" != --server ] && [ "$(cat $venv/requirements.sha256 2>/dev/null)" = "$wanted" ]; then
  echo "peers: already installed in $venv"
  exit 0
fi
give_up() {
  echo "peers: $1" >&2
  exit 1
}
python=/usr/bin/python3
[ -x "$python" ] || python=python3
[ -x $venv/bin/python ] || "$python" -m venv $venv
pip=("$venv/bin/pip" --quiet --disable-pip-version-check)
version=$(sed -n 's/^llama-cpp-python==//p' bench/peers/requirements.txt)
source=$work/llama_cpp_python-$version
began=$SECONDS

if [ "${1-}" != --server ]; then
  "${pip[@]}" install -r <(grep -v -E "$others" bench/peers/requirements.txt) || give_up "pip failed: check the network"
fi
if [ ! -f "$source/pyproject.toml" ]; then
  echo "peers: fetching llama.cpp"
  mkdir -p "$work"
  "${pip[@]}" download --no-deps --no-binary llama-cpp-python -d "$work" "llama-cpp-python==$version" || give_up "pip failed: check the network"
  tar -xzf "$source.tar.gz" -C "$work"
fi
# gcc 12 takes only the first 8 bytes of the matrix unit's tile configuration for used and removes the stores to the rest, which
# stops every Q8_0 run; without dead store elimination they stay.
stores="-fno-tree-dse -fno-dse"
if [ "${1-}" = --server ]; then
  # The package brings the sources of the server, but does not build it. Without its page, which would be downloaded.
  echo "peers: compiling llama.cpp's server (about ten minutes)"
  cmake -S "$source/vendor/llama.cpp" -B "$work/llama-server" -G Ninja -DCMAKE_BUILD_TYPE=Release "$features" -DBUILD_SHARED_LIBS=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF \
    -DCMAKE_CXX_FLAGS="$stores" >"$work/llama-server.log" || give_up "cmake failed: see $work/llama-server.log"
  cmake --build "$work/llama-server" -j "$(scripts/jobs.sh)" --target llama-server || give_up "llama.cpp did not compile: read the message above"
  echo "peers: build/peers/llama-server/bin/llama-server is there after $((SECONDS - began)) s"
  exit 0
fi
# From source: a ready-made wheel would be one for the least common CPU. No vision parts. At a fixed path, so that it can go on.
echo "peers: compiling llama.cpp (about ten minutes)"
CMAKE_ARGS="$features -DLLAVA_BUILD=OFF -DCMAKE_CXX_FLAGS='$stores'" CMAKE_BUILD_PARALLEL_LEVEL=$(scripts/jobs.sh) \
  "${pip[@]}" install --config-settings "build-dir=$work/$build" "$source" || give_up "llama.cpp did not compile: read the message above"
echo "$wanted" >$venv/requirements.sha256
echo "peers: installed in $((SECONDS - began)) s"
