#!/usr/bin/env bash
# Compiles the CUDA back end for one architecture in build/dev, which must have been built before, and checks that the program finds it
# and says why no GPU can be used. Needs no GPU; fetches nvcc and FlashInfer's headers if they are not there (tools/gpu/install_nvcc.sh).
# Usage: tools/gpu/check_build.sh [ARCHITECTURE]   (default: 90a). The last line reads `N passed, N failed`.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
if [ "${1:-}" = -h ] || [ "${1:-}" = --help ]; then sed -n '2,4s/^# \?//p' "$0"; exit 0; fi

if [ "$(uname -m)" != x86_64 ]; then
  echo "check_build.sh: nvcc is fetched for x86-64 alone: skipped"
  exit 0
fi
# As build/dev was: whatever nvcc is there, for all architectures.
restore() { cmake --preset dev -DTANDEM_CUDA=AUTO -UTANDEM_CUDA_ARCHITECTURES >/dev/null; }
check() {
  # The tests' environment has pip where the system's python3 has none.
  PATH="$PWD/build/venv/bin:$PATH" tools/gpu/install_nvcc.sh >/dev/null || return 1
  cmake --preset dev -DTANDEM_CUDA=ON -DTANDEM_CUDA_ARCHITECTURES="${1:-90a}" >/dev/null || return 1
  cmake --build build/dev -j "$(scripts/jobs.sh)" --target tandem tandem_cuda || return 1
  # The kernels of FlashInfer must be there, and the program must open the plugin.
  grep -c BatchPrefillWithPagedKVCacheKernel build/dev/libtandem_cuda.so >/dev/null || { echo "the plugin lacks FlashInfer's kernels"; return 1; }
  if [ "${1:-90a}" = 90a ] && ! grep -c BatchPrefillPersistentTileScheduler build/dev/libtandem_cuda.so >/dev/null; then
    echo "the plugin lacks FlashInfer's kernels for Hopper"
    return 1
  fi
  local said
  said=$(CUDA_VISIBLE_DEVICES='' build/dev/tandem --version -v | grep '^cuda: ')
  echo "$said"
  [[ $said == "cuda: absent: "*driver* ]]
}
trap restore EXIT
if check "$@"; then echo "1 passed, 0 failed"; else echo "0 passed, 1 failed"; exit 1; fi
