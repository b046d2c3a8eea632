#!/usr/bin/env bash
# Prints how many compile jobs this machine can bear: its cores, but at most one job per 2 GiB of available memory.
# Usage: scripts/jobs.sh   (TANDEM_JOBS=N overrides)
set -euo pipefail
if [ -n "${TANDEM_JOBS:-}" ]; then
  echo "$TANDEM_JOBS"
  exit 0
fi
cores=$(nproc)
available_kib=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
by_memory=$((available_kib / (2 * 1024 * 1024)))
jobs=$((cores < by_memory ? cores : by_memory))
echo $((jobs > 0 ? jobs : 1))
