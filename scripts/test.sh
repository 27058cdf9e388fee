#!/bin/bash
# test.sh [--pure] [go test flags] - go test for the whole tree, so that two cores suffice: packages
# without the kernel side by side first, then (unless --pure) those with root tests, which make network
# namespaces, one at a time. With SSLO_ROOT_TESTS=1 a skipped test is a failure: a run that promises
# everything can not lose a test silently.
set -euo pipefail
cd "$(dirname "$0")/.."
pure_only=
[ "${1:-}" != --pure ] || { pure_only=1; shift; }
flags=("$@")
log=$(mktemp)
trap 'rm -f "$log"' EXIT

run() {
	go test -count=1 -v "${flags[@]}" "$@" 2>&1 | tee -a "$log" | grep --line-buffered -vE '^=== (RUN|PAUSE|CONT|NAME)'
	return "${PIPESTATUS[0]}"
}

count() { grep -cE "^ *--- $1" "$log"; }

format='{{$p := .}}{{range .TestGoFiles}}{{println $p.ImportPath .}}{{end}}{{range .XTestGoFiles}}{{println $p.ImportPath .}}{{end}}'
mapfile -t rooted < <(go list -f "$format" ./... | awk '$2 ~ /_root_test\.go$/ {print $1}' | sort -u)
mapfile -t pure < <(go list ./... | grep -vxF "$(printf '%s\n' none "${rooted[@]}")")

status=0
run -timeout 5m "${pure[@]}" || status=1
if [ -z "$pure_only" ] && [ ${#rooted[@]} -gt 0 ]; then
	run -p 1 -timeout 12m "${rooted[@]}" || status=1
fi

echo "$(count PASS) passed, $(count FAIL) failed, $(count SKIP) skipped"
if [ "${SSLO_ROOT_TESTS:-}" = 1 ] && grep -E '^ *--- SKIP' "$log" >&2; then
	echo "test.sh: skipped although SSLO_ROOT_TESTS=1, see above" >&2
	status=1
fi
exit $status
