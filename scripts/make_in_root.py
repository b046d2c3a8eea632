#!/usr/bin/env python3
"""Builds the committed sources in a clean root of another release, and keeps the packages in build/packages.

Usage: scripts/make_in_root.py SUITE [deb|tar|wheel|tests]...   SUITE: bookworm, trixie or noble; default: deb
  tests   builds the unit tests with the compiler of that release and runs them there (tests that need models skip)
Needs root, debootstrap and the network. The compiler cache lies in build/packages/roots/SUITE.ccache. Log: build/packages/logs.
"""
import pathlib
import re
import shutil
import subprocess
import sys

import clean_root

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ROOT / "build" / "packages"
TESTS = ("scripts/install_packages.sh build && apt-get install -y -q --no-install-recommends libgtest-dev libgmock-dev && cmake --preset dev && "
         "cmake --build build/dev -j $(scripts/jobs.sh) -- --quiet && ctest --test-dir build/dev -j $(scripts/jobs.sh) --output-on-failure")


def main():
    arguments = sys.argv[1:]
    if not arguments or arguments[0] not in clean_root.MIRRORS:
        print(__doc__, file=sys.stderr)
        return 2
    suite, kinds = arguments[0], arguments[1:] or ["deb"]
    if reason := clean_root.why_not():
        print(f"make_in_root.py: {reason}", file=sys.stderr)
        return 1
    with clean_root.clean_root(suite) as root:
        subprocess.run(["git", "clone", "--quiet", ROOT, root.path / "tandem"], check=True)
        cache = clean_root.ROOTS / f"{suite}.ccache"
        cache.mkdir(exist_ok=True)
        (root.path / "ccache").mkdir()
        (PACKAGES / "logs").mkdir(parents=True, exist_ok=True)
        log = PACKAGES / "logs" / f"build-{suite}.log"
        build = ("apt-get install -y -q --no-install-recommends git ca-certificates && git config --global safe.directory /tandem && "
                 "cd /tandem && export CCACHE_DIR=/ccache")
        if packages := [kind for kind in kinds if kind != "tests"]:
            build += f" && scripts/make_packages.sh {' '.join(packages)}"
        if "tests" in kinds:
            build += f" && {TESTS}"
        mounted = clean_root.ENTER.replace("exec chroot", f'mount --bind "{cache}" "$root/ccache"\nexec chroot')
        print(f"building in {suite}; log: {log}", flush=True)
        with open(log, "wb") as out:
            done = subprocess.run(root.command(["bash", "-c", build], enter=mounted), stdout=out, stderr=subprocess.STDOUT,
                                  env=clean_root.CLEAN, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            print("\n".join(log.read_text(errors="replace").splitlines()[-30:]))
            return 1
        if "tests" in kinds:
            print((re.findall(r".*tests passed.*", log.read_text(errors="replace")) or [f"no tests ran; see {log}"])[-1])
        for made in sorted((root.path / "tandem" / "build" / "packages").glob("tandem*")):
            shutil.copy(made, PACKAGES)
            print(PACKAGES / made.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
