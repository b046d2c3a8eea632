#!/usr/bin/env bash
# Builds Tandem and makes packages of it in build/packages (docs/install.md says how each is installed).
# Usage: scripts/make_packages.sh [deb|tar|wheel|image]...   (default: deb tar wheel)
#   deb     a package for the Debian or Ubuntu release that this machine runs
#   tar     an archive with all libraries but glibc, for any Linux with this machine's glibc or a later one
#   wheel   the same for `pip install`; makes the archive, too
#   image   an OCI image of the archive, by podman or buildah: build/packages/tandem-image.tar
# Environment: TANDEM_JOBS  compile jobs (default: cores, at most one per 2 GiB of free memory)
#              TANDEM_IMAGE_BASE  the image that glibc and certificates are taken from (default debian:12-slim)
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=" ${*:-deb tar wheel} "
for kind in $wanted; do
  case "$kind" in
    deb|tar|wheel|image) ;;
    -h|--help) sed -n '2,10s/^# \?//p' "$0"; exit 0 ;;
    *) echo "make_packages.sh: unknown kind '$kind' (deb, tar, wheel or image)" >&2; exit 2 ;;
  esac
done
build=build/release
out=build/packages

scripts/install_packages.sh build package
mkdir -p build
cmake --preset release >build/release.configure.log 2>&1 || {
  cat build/release.configure.log >&2
  echo "make_packages.sh: cmake failed: read the message above" >&2
  exit 1
}
cmake --build "$build" --target tandem -j "$(scripts/jobs.sh)" -- --quiet

# pack GENERATOR: makes one package and prints its path. An older one of the kind, and for Debian of the same release, is removed.
pack() {
  local made
  rm -rf "$build/packages"
  cpack --config "$build/CPackConfig.cmake" -G "$1" >"build/cpack.log" 2>&1 || {
    cat build/cpack.log >&2
    echo "make_packages.sh: cpack failed: read the message above" >&2
    exit 1
  }
  mkdir -p "$out"
  made=$(echo "$build"/packages/tandem-serve*)
  case "$made" in
    *.deb) rm -f "$out"/*"~${made##*~}" ;;
    *) rm -f "$out"/*.tar.gz ;;
  esac
  mv "$made" "$out/"
  echo "$out/$(basename "$made")"
}

archive=
if [[ $wanted == *" deb "* ]]; then pack DEB; fi
if [[ $wanted =~ \ (tar|wheel|image)\  ]]; then
  archive=$(pack TGZ)
  echo "$archive"
fi
if [[ $wanted == *" wheel "* ]]; then
  version=$(sed -n 's/^set(TANDEM_VERSION_PYTHON "\(.*\)")$/\1/p' "$build/version.cmake")
  rm -f "$out"/*.whl
  python3 -B packaging/make_wheel.py "$archive" "$version" "$out"
fi
if [[ $wanted == *" image "* ]]; then
  tool=$(command -v podman || command -v buildah) || {
    echo "make_packages.sh: an image needs podman or buildah: install one of them" >&2
    exit 1
  }
  context=$(mktemp -d)
  trap 'rm -rf "$context"' EXIT
  cp packaging/Containerfile packaging/image_root.sh "$archive" "$context/"
  "$tool" build --build-arg "ARCHIVE=$(basename "$archive")" --build-arg "BASE=${TANDEM_IMAGE_BASE:-debian:12-slim}" -t tandem "$context"
  rm -f "$out/tandem-image.tar"
  "$tool" push tandem "oci-archive:$out/tandem-image.tar:tandem"
  echo "$out/tandem-image.tar"
fi
