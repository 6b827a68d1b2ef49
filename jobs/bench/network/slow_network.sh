#!/usr/bin/env bash
# Runs ranks on one machine over links of a given bandwidth: each node is a network namespace, joined by a bridge, both ends of
# every link limited by the kernel's token bucket filter (tc tbf). Needs root, ip and tc (Debian: iproute2), and the MPICH
# of the `mpi` extra. Nothing of it is in the program: what is measured is what users run.
#
# Usage: bash jobs/bench/network/slow_network.sh RATE RANKS COMMAND...
#
# RATE       of every link, both ways: 100mbit, 1gbit, … or unlimited
# RANKS      how many ranks, each on a node of its own with a link, or NODESxRANKS, such as 4x2: four nodes of two ranks
# COMMAND    what each of them runs
#
# With SENT=FILE in the environment, FILE gets a line per node: bytes and packets that its interface has sent.
#
# Example:
#   bash jobs/bench/network/slow_network.sh 100mbit 4 hpcgnn train --graph graph.h5 --schedule lazy --run-dir runs/lazy-100mbit
set -euo pipefail

case ${1:-} in -h | --help) sed -n '2,$ { /^#/!q; s/^# \{0,1\}//p }' "${BASH_SOURCE[0]}"; exit 0 ;; esac
fail() { echo "slow_network.sh: $*" >&2; exit 2; }
[ $# -ge 3 ] || fail "expected RATE RANKS COMMAND..., got: $*; --help says more"
rate=$1 ranks=$2
shift 2
[[ $rate =~ ^(unlimited|[0-9]+(k|m|g)bit)$ ]] || fail "RATE: expected a number with kbit, mbit or gbit, or unlimited, got '$rate'"
[[ $ranks =~ ^[1-9][0-9]{0,2}(x[1-9][0-9]?)?$ ]] || fail "RANKS: expected a number, or NODESxRANKS such as 4x2, got '$ranks'"
nodes=${ranks%x*} each=1
[ "$nodes" = "$ranks" ] || each=${ranks#*x}
[ "$nodes" -le 200 ] || fail "RANKS: expected at most 200 nodes, got $nodes"
[ "$(id -u)" = 0 ] || fail "network namespaces need root"
for tool in ip tc nsenter mpiexec; do command -v "$tool" > /dev/null || fail "$tool is not installed"; done

name=hpcgnn$$
work=$(mktemp -d)
cleanup() {
    for space in $(ip netns list | awk -v name="$name" 'index($1, name "-") == 1 {print $1}'); do
        ip netns pids "$space" | xargs -r kill -9 2> /dev/null || true
        ip netns del "$space"
    done
    rm -rf "$work"
}
trap cleanup EXIT

limit() { [ "$rate" = unlimited ] || nsenter --net="/run/netns/$name-$1" tc qdisc add dev "$2" root tbf rate "$rate" burst 256kb latency 50ms; }
inside() { local space=$1; shift; nsenter --net="/run/netns/$name-$space" "$@"; }

ip netns add "$name-hub" || fail "network namespaces cannot be made here"
inside hub ip link set lo up
inside hub ip link add bridge type bridge
inside hub ip address add 10.77.0.254/24 dev bridge
inside hub ip link set bridge up
hosts=""
for i in $(seq "$nodes"); do
    ip netns add "$name-$i"
    inside "$i" ip link set lo up
    inside hub ip link add "port$i" type veth peer name eth0 netns "$name-$i"
    inside hub ip link set "port$i" master bridge up
    inside "$i" ip address add "10.77.0.$i/24" dev eth0
    inside "$i" ip link set eth0 up
    limit "$i" eth0
    limit hub "port$i"
    hosts=$hosts${hosts:+,}10.77.0.$i
done
# What mpiexec takes for ssh: the host's last number is its namespace. Each has a host name of its own, as ranks of several nodes do.
cat > "$work/enter" <<END
#!/usr/bin/env bash
while [[ \$1 == -* ]]; do shift; done
number=\${1##*.}
shift
exec nsenter --net=/run/netns/$name-\$number unshare --uts sh -c 'hostname node\$0; exec sh -c "\$1"' "\$number" "\$*"
END
chmod +x "$work/enter"
# MPICH would find out that all is one machine, and go through its memory.
export UCX_TLS=tcp,self
[ "$each" -gt 1 ] || export MPIR_CVAR_NOLOCAL=1
inside hub "$(command -v mpiexec)" -localhost 10.77.0.254 -launcher ssh -launcher-exec "$work/enter" -hosts "$hosts" -ppn "$each" \
    -n $((nodes * each)) "$@"
[ -z "${SENT:-}" ] || for i in $(seq "$nodes"); do inside "$i" awk '/eth0:/ {print $10, $11}' /proc/net/dev; done > "$SENT"
