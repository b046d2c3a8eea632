#!/usr/bin/env bash
# Measures Tandem beside other servers: one model, one mixed load (chat beside bulk), runs in turn, one table.
# Usage: scripts/compare_servers.sh [options]   (--help lists them; --quick is a trial of three minutes)
set -euo pipefail
python=/usr/bin/python3
[ -x "$python" ] || python=python3
exec "$python" -B "$(dirname "$0")/compare_servers.py" "$@"
