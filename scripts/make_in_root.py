#!/usr/bin/env python3
"""Builds the committed sources in a clean root of another release, and keeps the packages in build/packages.

Usage: scripts/make_in_root.py SUITE [deb|tar|wheel]...   SUITE: bookworm, trixie or noble; default: deb
Needs root, debootstrap and the network. The compiler cache lies in build/packages/roots/SUITE.ccache. Log: build/packages/logs.
"""
import pathlib
import shutil
import subprocess
import sys

import clean_root

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ROOT / "build" / "packages"


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
                 f"cd /tandem && CCACHE_DIR=/ccache scripts/make_packages.sh {' '.join(kinds)}")
        mounted = clean_root.ENTER.replace("exec chroot", f'mount --bind "{cache}" "$root/ccache"\nexec chroot')
        print(f"building in {suite}; log: {log}", flush=True)
        with open(log, "wb") as out:
            done = subprocess.run(root.command(["bash", "-c", build], enter=mounted), stdout=out, stderr=subprocess.STDOUT,
                                  env=clean_root.CLEAN, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            print("\n".join(log.read_text(errors="replace").splitlines()[-30:]))
            return 1
        for made in sorted((root.path / "tandem" / "build" / "packages").glob("tandem*")):
            shutil.copy(made, PACKAGES)
            print(PACKAGES / made.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
