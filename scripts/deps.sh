#!/bin/bash
# deps.sh - install the Debian packages that this tree needs and that are missing, and no others.
#
#   scripts/deps.sh generate   to regenerate the eBPF objects (clang)
#   scripts/deps.sh test       to run the tests and the demo
#   scripts/deps.sh bench      to run the benchmark against HAProxy and nginx
#
# A package is installed only when the command (or file) that it brings is absent.
set -euo pipefail

generate="clang-14:clang-14 llvm-strip-14:llvm-14 /usr/include/bpf/bpf_helpers.h:libbpf-dev
  /usr/include/linux/bpf.h:linux-libc-dev"
test="git:git ip:iproute2 bridge:iproute2 curl:curl openssl:openssl tcpdump:tcpdump ethtool:ethtool nft:nftables
  ps:procps sysctl:procps ping:iputils-ping jq:jq nginx:nginx-light tshark:tshark"
bench="$test /usr/lib/nginx/modules/ngx_stream_module.so:libnginx-mod-stream haproxy:haproxy
  taskset:util-linux"

present() {
	case $1 in
	/*) [ -e "$1" ] ;;
	*) command -v "$1" >/dev/null ;;
	esac
}

missing() {
	local want
	for want in "$@"; do
		present "${want%%:*}" || echo "${want##*:}"
	done | sort -u
}

install_packages() {
	[ "$(id -u)" = 0 ] || { echo "deps.sh: missing, and not root to install them: $*" >&2; exit 1; }
	command -v apt-get >/dev/null || { echo "deps.sh: missing: $*" >&2; exit 1; }
	# nginx and haproxy start as services when installed; nobody asked for that here.
	local policy=/usr/sbin/policy-rc.d made=
	[ -e $policy ] || { printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy && made=1; }
	[ -z "$made" ] || trap 'rm -f /usr/sbin/policy-rc.d' EXIT
	apt-get -qq update
	DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "$@" >/dev/null
}

export PATH=$PATH:/usr/sbin:/sbin
for set in "${@:-test}"; do
	case $set in
	generate | test | bench) ;;
	*) echo "usage: deps.sh [generate|test|bench]..." >&2; exit 2 ;;
	esac
	mapfile -t need < <(missing ${!set})
	[ ${#need[@]} -eq 0 ] || { echo "deps.sh: installing ${need[*]}"; install_packages "${need[@]}"; }
done
