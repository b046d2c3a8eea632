#!/usr/bin/env bash
# Runs a test program on an emulated x86-64 processor with AVX-512, VNNI, AVX512_BF16 and AMX. Any x86-64 machine will do.
# Usage: scripts/test_emulated_x86.sh [--cpu MODEL] [--limit SECONDS] [PROGRAM [FILTER]]
#   --cpu      a processor of Bochs, for example sapphire_rapids (default), corei7_icelake_u (no BF16, no AMX) or
#              corei7_skylake_x (no VNNI either)
#   --limit    seconds after which the emulator is stopped (default 3600)
#   PROGRAM    a GoogleTest program that was built beforehand (default: build/dev/tests/ops/gemm_test)
#   FILTER     which of its tests, as for --gtest_filter (default: the tests of avx512, avx512bf16 and amx
#              without the longest of gemm_test)
# The emulator is Bochs. It starts a small Linux kernel that runs the program and nothing else. Each printed line starts with the seconds since the
# start. The last line reads `N passed, N failed`. The console of the last run is kept in build/emulated-x86/console.txt.
# The first run compiles Bochs and the kernel from Debian 13's sources in build/emulated-x86: ten minutes on one core, and 2 GB until it ends.
# The packages for this come from scripts/install_packages.sh emulated, which needs root once.
# Times on one core of a Zen 3: 10 s until the first test; the default 6 minutes (63 tests); attention_test 5 minutes without its window tests;
# the longest tests of GemmSiluMul 8 minutes for each family. Tests take 50 to 130 times as long as natively.
# Exit code: that of the tests; 2 a wrong argument; 3 the emulated machine could not be made, or did not finish.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "test_emulated_x86.sh: $2" >&2
  exit "$1"
}

cpu=sapphire_rapids
limit=3600
while [ $# -gt 0 ]; do
  case "$1" in
    --cpu) cpu=${2:-}; shift ;;
    --limit) limit=${2:-}; shift ;;
    -h|--help) sed -n '2,/^set /{/^set /d;s/^# \?//p}' "$0"; exit 0 ;;
    -*) fail 2 "unknown option '$1' (--help)" ;;
    *) break ;;
  esac
  shift || fail 2 "an option lacks its value (--help)"
done
[ $# -le 2 ] || fail 2 "too many arguments: '$3' (--help)"
program=${1:-build/dev/tests/ops/gemm_test}
filter=${2:-*/avx512:*/avx512bf16:*/amx-*LargeShapes*:*ARowOfALarge*:*OverTheWholeRange*}
[[ $cpu =~ ^[a-z0-9_]+$ ]] || fail 2 "--cpu '$cpu' is not the name of a processor; use for example sapphire_rapids"
[[ $limit =~ ^[1-9][0-9]*$ ]] || fail 2 "--limit '$limit' is not a number of seconds; use for example 600"
[ "$(uname -m)" = x86_64 ] || fail 2 "this machine is $(uname -m); the program and the kernel are compiled for x86_64, so run it there"
[ -x "$program" ] || fail 2 "$program is not a program; build it first: ninja -C build/dev ${program##*/}"
[[ $("$program" --gtest_list_tests --gtest_filter="$filter" 2>/dev/null) == *$'\n  '* ]] ||
  fail 2 "no test of $program matches '$filter'; list them with $program --gtest_list_tests"

cache=$PWD/build/emulated-x86
mkdir -p "$cache"
work=$(mktemp -d "$cache/run.XXXXXX")
emulator=
stop() {
  if [ -n "$emulator" ]; then
    kill "$emulator" 2>/dev/null || true
    mv "$work/console.txt" "$work/bochs.log" "$cache" 2>/dev/null || true
  fi
  rm -rf "$work"
}
trap stop EXIT
trap 'exit 3' INT TERM HUP

scripts/install_packages.sh build emulated

# Debian 13's package lists, with an apt state of their own: the machine's package database does not change.
read_lists() {
  local state=$work/apt mirror=${TANDEM_DEBIAN_MIRROR:-http://deb.debian.org/debian}
  export APT_CONFIG=$state/apt.conf
  [ ! -d "$state" ] || return 0
  mkdir -p "$state/state/lists/partial" "$state/cache/archives/partial" "$work/debs"
  : >"$state/status"
  printf "%s $mirror trixie main\n" deb deb-src >"$state/sources.list"
  cat >"$APT_CONFIG" <<CONF
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Sandbox::User "";
Dir::State "$state/state";
Dir::State::status "$state/status";
Dir::Cache "$state/cache";
Dir::Etc::sourcelist "$state/sources.list";
Dir::Etc::sourceparts "-";
CONF
  apt-get update -qq || fail 3 "could not read the package lists of Debian 13 from $mirror: check the network, or set TANDEM_DEBIAN_MIRROR"
}

# fetch PACKAGE...: downloads packages of Debian 13 into $work/debs.
fetch() {
  (read_lists && cd "$work/debs" && apt-get download -qq "$@" >/dev/null) ||
    fail 3 "could not download $* of Debian 13: check the network, or set TANDEM_DEBIAN_MIRROR"
}

# fetch_source PACKAGE FILE: downloads its upstream source as FILE. Some mirrors lack the small files that apt-get source wants beside it.
fetch_source() {
  (
    read_lists
    cd "$work/debs"
    read -r uri _ _ hash < <(apt-get source -qq --print-uris "$1" | tr -d "'" | grep -F .orig.tar)
    /usr/lib/apt/apt-helper -qq download-file "$uri" "$2" "$hash"
  ) || fail 3 "could not download the source of $1 of Debian 13: check the network, or set TANDEM_DEBIAN_MIRROR"
}

# Debian's own Bochs has a debugger, which makes it slower and needs a terminal. Two instructions are corrected: VCVTNE2PS2BF16 read beyond its
# first operand, and products of bytes by AMX took all bytes as unsigned.
make_bochs() {
  echo "emulated-x86: compiling Bochs"
  fetch_source bochs "$work/bochs.tar"
  fetch bochsbios vgabios
  local package
  for package in "$work"/debs/{bochsbios,vgabios}_*.deb; do dpkg-deb -x "$package" "$work/bios"; done
  mkdir "$work/bochs" "$work/bochs-source"
  tar -C "$work/bochs-source" --strip-components=1 -xf "$work/bochs.tar"
  (
    cd "$work/bochs-source/cpu/avx"
    sed -i 's/fp32_to_bfloat16(op1.vmm32u(n))/fp32_to_bfloat16(op1.vmm32u(n - DWORD_ELEMENTS(len)))/' avx512_bf16.cc
    sed -i 's/Bit32s(\([xy]byte\)/Bit32s((Bit8s)\1/g' amx.cc
    [ "$(grep -c 'vmm32u(n - DWORD' avx512_bf16.cc)" = 1 ] && [ "$(grep -c '(Bit8s)' amx.cc)" = 12 ] || { echo 'the corrections do not apply'; exit 1; }
    cd ../..
    CFLAGS='-O2 -pipe -w' CXXFLAGS='-O2 -pipe -w' ./configure --enable-cpu-level=6 --enable-x86-64 --enable-all-optimizations \
      --enable-avx --enable-evex --enable-amx --enable-cet --enable-uintr --enable-memtype --enable-protection-keys --enable-pci \
      --enable-cdrom --with-nogui --disable-docbook
    make -j "$jobs"
  ) >"$cache/bochs.build.log" 2>&1 || fail 3 "Bochs did not compile; see $cache/bochs.build.log"
  cp "$work/bochs-source/bochs" "$work/bios/usr/share/bochs/BIOS-bochs-latest" "$work/bios/usr/share/vgabios/vgabios.bin" "$work/bochs/"
  rm -rf "$cache/bochs"
  mv "$work/bochs" "$cache/bochs"
}

# Linux gives a process AMX only if the processor has XFD, with which the registers' memory is allocated at their first use. Bochs has no XFD, so
# this kernel saves the registers of every process from its start, in a larger buffer.
make_kernel() {
  echo "emulated-x86: compiling Linux"
  fetch linux-source-6.12
  dpkg-deb -x "$work"/debs/linux-source-6.12_*.deb "$work/kernel"
  tar -C "$work/kernel" --strip-components=1 --wildcards --exclude='*/drivers/gpu/*.[ch]' --exclude='*/drivers/net/*.[ch]' \
    --exclude='*/sound/*.[ch]' --exclude='*/tools/testing/*.[ch]' --exclude='*/Documentation/*.rst' -xf "$work"/kernel/usr/src/linux-source-6.12.tar.xz
  (
    cd "$work/kernel"
    headers=arch/x86/include/asm/fpu
    sed -i 's/^\(#define XFEATURE_MASK_USER_DYNAMIC\)\s.*/\1 0ULL/' "$headers/xstate.h"
    sed -i 's/__padding\[PAGE_SIZE\]/__padding[4 * PAGE_SIZE]/' "$headers/types.h"
    sed -i '/BUILD_BUG_ON(XFEATURE_MASK_USER_DYNAMIC /d' arch/x86/kernel/fpu/core.c
    grep -q 'USER_DYNAMIC 0ULL' "$headers/xstate.h" && grep -q '__padding\[4 ' "$headers/types.h" || { echo 'the changes do not apply'; exit 1; }
    make tinyconfig
    scripts/config -e 64BIT -e EXPERT -e PRINTK -e TTY -e SERIAL_8250 -e SERIAL_8250_CONSOLE -e BLK_DEV_INITRD -e RD_GZIP -e BINFMT_ELF \
      -e BINFMT_SCRIPT -e DEVTMPFS -e PROC_FS -e SYSFS -e FUTEX -e EPOLL -e EVENTFD -e TIMERFD -e SIGNALFD -e POSIX_TIMERS -e SHMEM -e TMPFS \
      -e MULTIUSER -e FILE_LOCKING -e ADVISE_SYSCALLS -e MEMBARRIER -e RSEQ -e BUG -e HIGH_RES_TIMERS -e KERNEL_LZ4 -d KERNEL_XZ \
      -e CC_OPTIMIZE_FOR_PERFORMANCE -d CC_OPTIMIZE_FOR_SIZE -d CPU_MITIGATIONS -d X86_KERNEL_IBT
    make olddefconfig
    make -j "$jobs" bzImage
  ) >"$cache/kernel.build.log" 2>&1 || fail 3 "Linux did not compile; see $cache/kernel.build.log"
  mv "$work/kernel/arch/x86/boot/bzImage" "$cache/vmlinuz"
  rm -rf "$work/kernel"
}

jobs=$(scripts/jobs.sh)
[ -f "$cache/bochs/bochs" ] || make_bochs
[ -f "$cache/vmlinuz" ] || make_kernel
models=$("$cache/bochs/bochs" --help cpu 2>&1 || true)
[[ $'\n'$models$'\n' == *$'\n'"$cpu"$'\n'* ]] ||
  fail 2 "Bochs has no processor '$cpu'; list them with $cache/bochs/bochs --help cpu"

# The initial root folder: the program, its libraries and a shell.
root=$work/root
mkdir -p "$root"/{bin,dev,proc,sys,tmp} "$work/cd/isolinux"
strip -o "$root/bin/test_program" "$program"
ldd "$program" | grep -oE '/[^ ]+\.so[^ ]*' | while read -r library; do
  mkdir -p "$root/$(dirname "$library")"
  cp -L "$library" "$root/$library"
done
cp /bin/busybox "$root/bin/"
printf '%s' "$filter" >"$root/filter"
cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
exec >/dev/ttyS0 2>&1
/bin/busybox grep -m 1 'model name' /proc/cpuinfo
echo "features$(/bin/busybox grep -m 1 flags /proc/cpuinfo | /bin/busybox grep -oE ' (avx2|avx512|amx|avx_vnni)[a-z0-9_]*' | /bin/busybox tr -d '\n')"
/bin/test_program --gtest_color=no --gtest_filter="$(/bin/busybox cat /filter)"
echo "exit code $?"
while true; do /bin/busybox sleep 1000; done
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc | gzip -1 >"$work/cd/initrd")
ln "$cache/vmlinuz" "$work/cd/vmlinuz"
cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 "$work/cd/isolinux/"
cat >"$work/cd/isolinux/isolinux.cfg" <<'CONFIG'
default linux
prompt 0
timeout 1
label linux
  kernel /vmlinuz
  append initrd=/initrd console=ttyS0 loglevel=3
CONFIG
xorriso -as mkisofs -quiet -o "$work/disk.iso" -b isolinux/isolinux.bin -c isolinux/boot.cat -no-emul-boot -boot-load-size 4 \
  -boot-info-table "$work/cd" 2>/dev/null

console=$work/console.txt
: >"$console"
cat >"$work/bochsrc" <<CONFIG
config_interface: textconfig
display_library: nogui
cpu: model=$cpu, count=1, ips=100000000, reset_on_triple_fault=0
memory: guest=2048, host=2048
romimage: file=$cache/bochs/BIOS-bochs-latest
vgaromimage: file=$cache/bochs/vgabios.bin
ata0-master: type=cdrom, path=$work/disk.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$console
clock: sync=none
log: $work/bochs.log
panic: action=fatal
CONFIG
started=$SECONDS
echo "emulated-x86: starting $cpu; the console follows after about half a minute"
timeout "$limit" "$cache/bochs/bochs" -q -f "$work/bochsrc" >"$work/bochs.out" 2>&1 </dev/null &
emulator=$!

code=
passed=0
failed=0
while IFS= read -r line; do
  line=${line%$'\r'}
  printf '%4d s  %s\n' $((SECONDS - started)) "$line"
  case "$line" in
    '[       OK ]'*) passed=$((passed + 1)) ;;
    '[  FAILED  ]'*' ms)') failed=$((failed + 1)) ;;
    'exit code '*) code=${line#exit code }; break ;;
  esac
done < <(tail --pid="$emulator" -n +1 -f "$console")
if [ -z "$code" ]; then
  ended=0
  wait "$emulator" || ended=$?
  [ "$ended" -ne 124 ] || fail 3 "the tests did not end within $limit s; choose fewer by FILTER, or a larger --limit"
  fail 3 "the emulator ended before the tests: $(grep -hm 1 PANIC "$work/bochs.log" || echo 'it says no reason'); see $cache/console.txt and $cache/bochs.log"
fi
if [ "$code" -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi  # it crashed
[ $((passed + failed)) -gt 0 ] || fail 2 "no test ran: $cpu lacks the instructions that '$filter' needs; choose another --cpu"
echo "$passed passed, $failed failed"
exit "$code"
