#!/bin/bash
# fuzz.sh - run each fuzz function of the tree for $FUZZTIME (default 10s).
set -euo pipefail
cd "$(dirname "$0")/.."
grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sed 's/func //' | sort -u |
	while IFS=: read -r file name; do
		echo "fuzz $name in $(dirname "$file")"
		go test -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-10s}" "$(dirname "$file")"
	done
