#!/usr/bin/env bash
# Checks and tests packaging/alerts.yaml with promtool (Debian: the package prometheus, which also installs a server; or
# `apt-get download prometheus && dpkg -x prometheus_*.deb DIR` for DIR/usr/bin/promtool alone).
# Usage: scripts/check_alerts.sh
# Environment: PROMTOOL  the program (default: promtool on the PATH)
# Exit code: 0 all passed, 1 a rule or test failed, 77 no promtool: nothing was checked.
set -euo pipefail
promtool=${PROMTOOL:-promtool}
cd "$(dirname "$0")/../packaging"
if ! command -v "$promtool" >/dev/null; then
  echo "check_alerts.sh: skipped: '$promtool' is not installed; set PROMTOOL, or install the package prometheus" >&2
  exit 77
fi
"$promtool" check rules alerts.yaml
"$promtool" test rules alerts_test.yaml
