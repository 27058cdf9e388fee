#!/bin/bash
# fuzz.sh - run each fuzz function of the tree for $FUZZTIME (default 10s).
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# go test may call the end of the time itself a failure ("context deadline exceeded"):
# a real one names the input that it found.
fuzz() {
	go test -run '^$' -fuzz "^$2\$" -fuzztime "${FUZZTIME:-10s}" -fuzzminimizetime 20x "$1" 2>&1 | tee "$log" && return
	grep -qx ' *context deadline exceeded' "$log" && ! grep -qE 'Failing input|panic|fatal' "$log"
}

grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sed 's/func //' | sort -u |
	while IFS=: read -r file name; do
		echo "fuzz $name in $(dirname "$file")"
		fuzz "$(dirname "$file")" "$name"
	done
