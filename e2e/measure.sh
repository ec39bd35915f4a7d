#!/bin/sh
# Runs the measurements whose names fit a pattern at full size, and prints their tables in Markdown:
# measure.sh FILE PATTERN. The tables go to FILE, too. See measure_test.go for what SCALE and RUNS do,
# and docs/benchmarks.md for what comes out.
set -u
out=$1
mkdir -p "$(dirname "$out")" && : >"$out" || exit 1
case $out in /*) ;; *) out=$PWD/$out ;; esac
MTA_MEASURE=1 MTA_SCALE=${SCALE:-1} MTA_RUNS=${RUNS:-3} MTA_MEASURE_OUT=$out \
	${GO:-go} test -count=1 -timeout 30m -v -run "$2" ./e2e
status=$?
echo
cat "$out"
echo "The tables are in $out."
exit $status
