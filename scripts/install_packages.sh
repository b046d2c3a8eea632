#!/usr/bin/env bash
# Installs every Debian package that Tandem's build, tests and tools need. The one place where dependencies are named.
# Usage: scripts/install_packages.sh [build|test|cross|emulated|package|boot]...   (default: build test)
# Needs root or sudo. Does nothing (and needs no network) when everything is already installed.
set -euo pipefail

# Debian 12's own Boost (1.74) is too old, but it has a newer one beside it.
boost=libboost-dev
if [ "$(. /etc/os-release && echo "$ID $VERSION_ID")" = "debian 12" ]; then boost=libboost1.81-dev; fi

# To compile and run the server.
build_packages=(
  g++ cmake ninja-build ccache pkg-config
  "$boost"               # Asio and Beast: sockets, HTTP
  nlohmann-json3-dev     # JSON
  libfmt-dev libspdlog-dev
  libcli11-dev           # command line
  libyaml-cpp-dev        # --config files
  libpcre2-dev           # pre-tokenizer regular expressions
  libutf8proc-dev        # Unicode normal forms
  libsentencepiece-dev   # tokenizer.model
  libhwy-dev             # portable SIMD (AVX2, AVX-512, NEON)
  prometheus-cpp-dev     # /metrics
  zlib1g-dev             # traces that are packed by gzip
  libssl-dev             # TLS, SHA-256
  libsqlite3-dev         # files and batches that outlive the server
  libcurl4-openssl-dev   # models by name
)
# To run ./test.sh and .ci/run.
test_packages=(
  libgtest-dev libgmock-dev libbenchmark-dev libdnnl-dev
  chromium               # the page at /, through Playwright
  zsh man-db             # completion and manual page
  python3 python3-venv openssl clang libclang-rt-dev lld clang-format clang-tidy
)
# To cross-compile the kernels for 64-bit Arm and run their tests under emulation.
cross_packages=(g++-aarch64-linux-gnu qemu-user)
# To run test programs on an emulated x86-64 processor (scripts/test_emulated_x86.sh).
emulated_packages=(make flex bison bc libelf-dev lz4 cpio xz-utils busybox-static isolinux syslinux-common xorriso)
# To make packages of Tandem and to try them in clean roots.
package_packages=(dpkg-dev file patchelf debootstrap systemd)
# To try the Debian package's unit in a virtual machine.
boot_packages=(debootstrap e2fsprogs qemu-system-x86)

wanted=()
for group in "${@:-build test}"; do
  for name in $group; do
    case "$name" in
      build) wanted+=("${build_packages[@]}") ;;
      test) wanted+=("${test_packages[@]}") ;;
      cross) wanted+=("${cross_packages[@]}") ;;
      emulated) wanted+=("${emulated_packages[@]}") ;;
      package) wanted+=("${package_packages[@]}") ;;
      boot) wanted+=("${boot_packages[@]}") ;;
      *) echo "install_packages.sh: unknown group '$name' (build, test, cross, emulated, package or boot)" >&2; exit 2 ;;
    esac
  done
done

missing=()
for package in "${wanted[@]}"; do
  if ! dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed'; then
    missing+=("$package")
  fi
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "packages: all ${#wanted[@]} present"
  exit 0
fi

if ! command -v apt-get >/dev/null; then
  echo "install_packages.sh: this script needs Debian's apt-get; missing packages: ${missing[*]}" >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install_packages.sh: run as root, or install sudo; missing: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "packages: installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
echo "packages: installed ${#missing[@]}"
