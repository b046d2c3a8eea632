#!/usr/bin/env bash
# Fetches the Python packages of check.sh's stage e2e as wheels into .whl, for a machine without a network: check.sh unpacks them there.
# Usage: tools/gpu/fetch_wheels.sh [PYTHON]   (PYTHON: of that machine, default 3.12)
set -euo pipefail
cd "$(dirname "$0")/../.."
names='annotated-types|anyio|certifi|h11|httpcore2?|httpx2?|idna|iniconfig|jiter|openai|packaging|pluggy|pydantic(_core)?|Pygments|pytest|sniffio|tqdm|truststore|typing-inspection|typing_extensions'
rm -rf .whl
grep -E "^($names)==" tests/e2e/requirements.txt | python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version "${1:-3.12}" \
  --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 --dest .whl -r /dev/stdin
du -sh .whl
