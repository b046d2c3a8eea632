#!/usr/bin/env bash
# Cross-compiles base and the kernels for 64-bit Arm and runs their tests under qemu-user.
# Usage: scripts/test_aarch64.sh [--help]
# Installs Debian's cross compiler and qemu (scripts/install_packages.sh cross). The Arm libraries are downloaded and unpacked into
# build/aarch64-root with an apt state of its own: the machine's package database learns of no second architecture.
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
  '') ;;
  -h|--help) sed -n '2,5s/^# \?//p' "$0"; exit 0 ;;
  *) echo "test_aarch64.sh: unknown argument '$1' (--help)" >&2; exit 2 ;;
esac

packages=(libhwy-dev libhwy1 libfmt-dev libfmt9 libspdlog-dev libspdlog1.10 libgtest-dev libgmock-dev nlohmann-json3-dev)
root=$PWD/build/aarch64-root
build=build/aarch64

scripts/install_packages.sh build test cross

if [ "$(cat "$root/packages" 2>/dev/null)" != "${packages[*]}" ]; then
  echo "aarch64: fetching ${packages[*]}"
  rm -rf "$root"
  state=$root.apt
  mkdir -p "$root" "$state/state/lists/partial" "$state/cache/archives/partial" "$state/debs"
  : >"$state/status"
  cat >"$state/apt.conf" <<CONF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "";
Dir::State "$state/state";
Dir::State::status "$state/status";
Dir::Cache "$state/cache";
CONF
  # A source without arm64 packages makes update complain; the download below is what must succeed.
  APT_CONFIG=$state/apt.conf apt-get update -qq || true
  (cd "$state/debs" && APT_CONFIG=$state/apt.conf apt-get download -qq "${packages[@]}") || {
    echo "test_aarch64.sh: could not download the arm64 libraries: check the network and /etc/apt/sources.list" >&2
    exit 1
  }
  for package in "$state"/debs/*.deb; do dpkg-deb -x "$package" "$root"; done
  rm -rf "$state"
  echo "${packages[*]}" >"$root/packages"
fi

cmake -G Ninja -S cmake/aarch64 -B "$build" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" -DTANDEM_AARCH64_ROOT="$root" >"$build.configure.log" 2>&1 || {
  cat "$build.configure.log" >&2
  echo "test_aarch64.sh: cmake failed; if a package changed, delete $build and $root" >&2
  exit 1
}
cmake --build "$build" -j "$(scripts/jobs.sh)" -- --quiet

reports=$PWD/$build/reports
rm -rf "$reports"
mkdir -p "$reports/gtest"
status=0
# Emulation is slow. Kernels for GPUs and plain references have no code for Arm of their own: the first are left out here, and of the
# others the tests that take longest.
export GTEST_FILTER='-*/cuda:*Window*/ref:*PrefillRow*/ref'
GTEST_OUTPUT="xml:$reports/gtest/" ctest --test-dir "$build" -j "$(nproc)" --output-on-failure --no-tests=error \
  --output-junit "$reports/ctest.xml" || status=1
report=$(/usr/bin/env python3 -B scripts/count_tests.py "$reports")
read -r passed failed _ <<<"$(tail -n 1 <<<"$report")"
sed '$d' <<<"$report"
echo "$passed passed, $failed failed"
exit "$status"
