#!/bin/sh
# Runs measurements at full size and prints their tables in Markdown: measure.sh NAME PATTERN, where
# the tests whose names fit the pattern are run. The tables go to $OUT, too, bin/NAME.md by default,
# and with FILL=1 into docs/benchmarks.md, between the marks of that name. measure_test.go says what
# SCALE and RUNS do.
set -u
name=$1 pattern=$2 page=docs/benchmarks.md
out=${OUT:-bin/$name.md}
case $out in /*) ;; *) out=$PWD/$out ;; esac
mkdir -p "$(dirname "$out")" && : >"$out" || exit 1
MTA_MEASURE=1 MTA_SCALE=${SCALE:-1} MTA_RUNS=${RUNS:-3} MTA_BASES=${BASES:-} MTA_MEASURE_OUT=$out \
	${GO:-go} test -count=1 -timeout 30m -v -run "$pattern" ./e2e
status=$?
echo
cat "$out"
echo "The tables are in $out."
if [ -n "${FILL:-}" ] && [ $status = 0 ]; then
	awk -v from="<!-- $name -->" -v to="<!-- /$name -->" -v tables="$out" '
		$0 == to { within = 0 }
		!within
		$0 == from {
			within = 1
			print ""
			while ((getline line < tables) > 0) print line
		}' "$page" >"$page.new" && mv "$page.new" "$page"
	echo "They are in $page, too."
fi
exit $status
