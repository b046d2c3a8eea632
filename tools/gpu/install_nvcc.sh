#!/usr/bin/env bash
# Installs the CUDA compiler that builds Tandem's CUDA back end, and the headers of FlashInfer and CUTLASS, into a folder of the checkout;
# nothing outside it changes.
# Usage: tools/gpu/install_nvcc.sh [--print] [FOLDER]
#   FOLDER    where to (default: build/cuda-toolchain; CMake looks there by itself, elsewhere say -DTANDEM_NVCC=FOLDER/nvidia/cu13/bin/nvcc)
#   --print   only print the path of nvcc, as the last line does, and fail if it is not installed
# Downloads 170 MB (versions and checksums: tools/gpu/*.requirements.txt), which take 305 MB on disk. Done once: a second call
# returns at once, until versions or the kept headers change. Not needed where nvcc 13 is installed, nor to serve from CPUs. x86-64 Linux only; needs python3 with pip.
set -euo pipefail
cd "$(dirname "$0")/../.."

only_print=0
folder=build/cuda-toolchain
while [ $# -gt 0 ]; do
  case "$1" in
    --print) only_print=1 ;;
    -h|--help) sed -n '2,8s/^# \?//p' "$0"; exit 0 ;;
    -*) echo "install_nvcc.sh: unknown argument '$1' (--print or --help)" >&2; exit 2 ;;
    *) folder=$1 ;;
  esac
  shift
done

requirements=tools/gpu/nvcc.requirements.txt
header_requirements=tools/gpu/flashinfer.requirements.txt
nvcc=$folder/nvidia/cu13/bin/nvcc
# What is kept of the header packages: a folder of a package, and its name here.
headers="flashinfer/data/include/=include nvidia/cu13/include/cccl/=cccl flashinfer/data/cutlass/include/=cutlass"
stamp=$folder/requirements.sha256
wanted=$({ cat "$requirements" "$header_requirements"; echo "$headers"; } | sha256sum | cut -d' ' -f1)
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  if [ "$only_print" -eq 1 ]; then
    echo "install_nvcc.sh: $folder does not hold it; run tools/gpu/install_nvcc.sh $folder" >&2
    exit 1
  fi
  if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "install_nvcc.sh: only for Linux on x86_64, this is $(uname -sm); install the CUDA toolkit 13 by hand" >&2
    exit 1
  fi
  if [ -n "$(ls -A "$folder" 2>/dev/null)" ] && [ ! -d "$folder/nvidia" ] && [ ! -d "$folder/wheels" ]; then
    echo "install_nvcc.sh: $folder holds other files, and would be emptied: name a new folder" >&2
    exit 2
  fi
  rm -rf "$folder"
  mkdir -p "$folder/wheels"
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --only-binary=:all: --require-hashes \
    --target "$folder" -r "$requirements" || {
    rm -rf "$folder"
    echo "install_nvcc.sh: pip could not install $requirements: read its message above, check the network and run again" >&2
    exit 1
  }
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    --dest "$folder/wheels" -r "$header_requirements" || {
    rm -rf "$folder"
    echo "install_nvcc.sh: pip could not fetch $header_requirements: read its message above, check the network and run again" >&2
    exit 1
  }
  # Only the headers, and of CUTLASS not the huge *_ext.hpp, which nothing here includes: the packages hold half a gigabyte besides.
  python3 - "$folder" "$headers" <<'PYTHON'
import pathlib, sys, zipfile

folder = pathlib.Path(sys.argv[1])
kept = dict(pair.split("=") for pair in sys.argv[2].split())
for wheel in (folder / "wheels").glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            for prefix, place in kept.items():
                if name.startswith(prefix) and not name.endswith(("/", "_ext.hpp")):
                    target = folder / "flashinfer" / place / name.removeprefix(prefix)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.read(name))
            if name.startswith("flashinfer") and name.endswith(".dist-info/licenses/LICENSE"):
                target = folder / "flashinfer" / "LICENSE"
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(name))
PYTHON
  rm -rf "$folder/wheels"
  chmod +x "$folder"/nvidia/cu13/bin/* "$folder"/nvidia/cu13/nvvm/bin/*
  "$nvcc" --version >/dev/null || {
    echo "install_nvcc.sh: $nvcc does not start on this machine" >&2
    exit 1
  }
  echo "$wanted" >"$stamp"
fi
realpath "$nvcc"
