#!/bin/bash
# check-generated.sh - regenerate everything that is generated and committed; fail if a file changes.
# It compares with the work tree, not with HEAD, so that it is of use before a commit too.
set -euo pipefail
cd "$(dirname "$0")/.."

sums() { git ls-files -z --cached --others --exclude-standard | sort -zu | xargs -0 sha256sum 2>/dev/null || true; }

before=$(sums)
make -s generate
if ! diff <(echo "$before") <(sums); then
	echo "check-generated: the files above are not what 'make generate' makes" >&2
	exit 1
fi
