#!/usr/bin/env bash
# A real SLURM on this one machine, with several virtual nodes: to try the scripts of jobs/ before they cost node-hours, and to test them.
#
#   bash env/slurm-local.sh up [NODES [CPUS_PER_NODE]]   start it (2 nodes of 2 CPUs); installs Debian's packages if they are missing
#   eval "$(bash env/slurm-local.sh env)"                make sbatch, srun and squeue of this shell talk to it
#   bash env/slurm-local.sh status                       what runs; exit code 3 if it is down
#   bash env/slurm-local.sh down [--force]               end its daemons, and remove its directory; --force: its jobs too
#
# Everything lives in one private directory (HPCGNN_SLURM_DIR, by default /tmp/hpcgnn-slurm-UID): configuration, key, sockets, logs, on
# ports of 127.0.0.1 that were free. /etc/slurm and /etc/munge are neither read nor written. Others may be up beside it, each in
# its own directory. Nodes may have more CPUs than the machine, so times taken on it are worth nothing.
set -euo pipefail
trap 'echo "slurm-local: failed at line $LINENO: $BASH_COMMAND" >&2' ERR

dir=$(realpath -m "${HPCGNN_SLURM_DIR:-/tmp/hpcgnn-slurm-$(id -u)}")
conf=$dir/slurm.conf
packages="slurmctld slurmd slurm-client munge"
PATH=$PATH:/usr/sbin:/sbin
fail() { echo "slurm-local: error: $*" >&2; exit 2; }

is_ours() { # PID: whether this process was given our configuration
    { tr '\0' '\n' < "/proc/$1/environ"; } 2>/dev/null | grep -qxF "SLURM_CONF=$conf"
}

# PIDs of our daemons, and of processes of our jobs: those carry our configuration and a job's number, which this shell does not.
daemons() { local pid; for pid in $(pgrep -x slurmctld; pgrep -x slurmd); do ! is_ours "$pid" || echo "$pid"; done; }
job_processes() {
    local pid
    for pid in /proc/[0-9]*; do
        pid=${pid#/proc/}
        if is_ours "$pid" && { tr '\0' '\n' < "/proc/$pid/environ" | grep -q '^SLURM_JOB_ID=' || [[ $(cat "/proc/$pid/comm") == slurmstepd* ]]; }; then
            echo "$pid"
        fi
    done 2>/dev/null
}

is_up() { [ -e "$conf" ] && SLURM_CONF=$conf timeout 10 scontrol ping 2>/dev/null | grep -q "is UP"; }

check_place() {
    [ -z "${SLURM_JOB_ID:-}" ] || fail "this shell is inside SLURM job $SLURM_JOB_ID; use that cluster"
    [ -z "$(daemons)" ] || fail "it is up already, in $dir; take it down first: bash env/slurm-local.sh down"
    [ ! -e "$dir" ] || [ -e "$dir/slurm-local" ] || fail "$dir exists and is not ours; set HPCGNN_SLURM_DIR to another directory"
    [ ${#dir} -le 80 ] || fail "$dir is too long a path for a socket; set HPCGNN_SLURM_DIR to a shorter one"
}

install_packages() {
    local missing="" name policy=/usr/sbin/policy-rc.d made=""
    for name in slurmctld slurmd sbatch munged; do command -v $name >/dev/null || missing+=" $name"; done
    [ -n "$missing" ] || return 0
    [ "$(id -u)" = 0 ] || fail "not installed:$missing; have root run: apt-get install $packages"
    command -v apt-get >/dev/null || fail "not installed:$missing; and no apt-get: install SLURM and munge by other means"
    echo "slurm-local: installing $packages" >&2
    # Packages start their services by themselves where nothing forbids it.
    if [ ! -e $policy ]; then printf '#!/bin/sh\nexit 101\n' > $policy; chmod +x $policy; made=yes; fi
    # shellcheck disable=SC2086
    if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages; } > "$dir.apt" 2>&1; then
        [ -z "$made" ] || rm -f $policy
        fail "apt-get could not install $packages: $(grep -m1 '^E:' "$dir.apt" || tail -1 "$dir.apt")"
    fi
    [ -z "$made" ] || rm -f $policy
    rm -f "$dir.apt"
}

free_ports() { # COUNT: the first of so many free neighbouring ports, in any order: another SLURM may be starting too
    local base port
    for base in $(seq 26800 100 29800 | shuf); do
        for port in $(seq "$base" $((base + $1))); do
            ! (exec 3<> "/dev/tcp/127.0.0.1/$port") 2>/dev/null || continue 2
        done
        echo "$base"
        return
    done
    fail "no free ports between 26800 and 29800"
}

write_configuration() { # NODES CPUS
    local nodes=$1 cpus=$2 base memory node user
    base=$(free_ports $((nodes + 60)))
    # Job numbers name shared memory that killed MPI ranks leave behind: never those of the last time, nor of another SLURM.
    local first=$(((base - 26800) / 100 * 2000000 + $(date +%s) % 2000000))
    memory=$(($(awk '/MemTotal/ {print $2}' /proc/meminfo) / 1024 / nodes))
    user=$(id -un)
    cat > "$conf" <<CONF
ClusterName=hpcgnn
FirstJobId=$first
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$base
SrunPortRange=$((base + nodes + 1))-$((base + nodes + 60))
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
# A requeued job waits until its old credentials have expired: 120 s by default.
AuthInfo=socket=$dir/munge/socket,cred_expire=5
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
TmpFS=$dir/tmp/%n
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd.%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=pmi2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0,defer_batch
ReturnToService=2
KillWait=5
SlurmctldTimeout=30
SlurmdTimeout=30
InactiveLimit=0
PropagateResourceLimits=NONE
PartitionName=main Nodes=n[1-$nodes] Default=YES MaxTime=INFINITE State=UP
CONF
    for node in $(seq "$nodes"); do
        # Each CPU is a socket of its own, so that a node has several ranks where the scripts ask SLURM for sockets.
        echo "NodeName=n$node NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((base + node)) CPUs=$cpus Boards=1" \
            "SocketsPerBoard=$cpus CoresPerSocket=1 ThreadsPerCore=1 RealMemory=$memory State=UNKNOWN"
    done >> "$conf"
    # slurmd 22.05 refuses to start without a cgroup plugin it can load, even if it is told to use none.
    echo "CgroupPlugin=cgroup/v1" > "$dir/cgroup.conf"
}

# NODE NODES: this node's share of the cores that we may use, so that nodes do not take time from each other, and that ranks which share
# cores see it (they then sleep instead of spinning while they wait)
cores_of_node() {
    local cores=() part first last
    for part in $(taskset -cp $$ | sed 's/.*: //; s/,/ /g'); do
        first=${part%-*} last=${part#*-}
        mapfile -t -O ${#cores[@]} cores < <(seq "$first" "$last")
    done
    first=$((($1 - 1) * ${#cores[@]} / $2)) last=$(($1 * ${#cores[@]} / $2))
    (IFS=,; echo "${cores[*]:first:last > first ? last - first : 1}")
}

up() {
    local nodes=${1:-2} cpus=${2:-2} node
    [[ $nodes =~ ^[1-9][0-9]?$ && $cpus =~ ^[1-9][0-9]*$ ]] || fail "expected: up [NODES [CPUS_PER_NODE]], at most 99 nodes; got: up $*"
    check_place
    rm -rf "$dir"
    install_packages
    mkdir -p "$(dirname "$dir")"
    mkdir "$dir" "$dir"/{run,state,log,spool,munge,tmp} # new: in /tmp others could have made it
    touch "$dir/slurm-local"
    for node in $(seq "$nodes"); do mkdir -p "$dir/tmp/n$node"; done
    chmod 755 "$dir" "$dir/munge"
    (umask 077; head -c 1024 /dev/urandom > "$dir/munge/key")
    munged --key-file="$dir/munge/key" --socket="$dir/munge/socket" --pid-file="$dir/run/munged.pid" --log-file="$dir/log/munged.log" \
        --seed-file="$dir/munge/seed" --num-threads=2
    write_configuration "$nodes" "$cpus"
    export SLURM_CONF=$conf
    slurmctld -f "$conf"
    for node in $(seq "$nodes"); do taskset -c "$(cores_of_node "$node" "$nodes")" slurmd -f "$conf" -N "n$node"; done
    for _ in $(seq 100); do
        if [ "$(sinfo -h -o '%D %t' 2>/dev/null)" = "$nodes idle" ]; then
            echo "slurm-local: up, $nodes nodes of $cpus CPUs; now: eval \"\$(bash env/slurm-local.sh env)\"" >&2
            return
        fi
        sleep 0.2
    done
    tail -n 5 "$dir"/log/*.log >&2
    down --force
    fail "the nodes did not come up in 20 s; the lines above are the ends of the logs"
}

down() {
    local pids=() file
    [ -z "$*" ] || [ "$*" = --force ] || fail "expected: down [--force]; got: down $*"
    if [ ! -e "$dir/slurm-local" ]; then echo "slurm-local: it is down" >&2; return; fi
    export SLURM_CONF=$conf
    if [ -z "$*" ] && [ -n "$(is_up && squeue -h)$(job_processes)" ]; then
        fail "jobs run or wait in $dir; wait until squeue is empty, or end them: bash env/slurm-local.sh down --force"
    fi
    if is_up; then
        scancel --user="$(id -un)" 2>/dev/null || true
        for _ in $(seq 50); do [ -n "$(squeue -h 2>/dev/null)" ] || break; sleep 0.2; done
    fi
    for file in "$dir"/run/*.pid; do [ ! -s "$file" ] || pids+=("$(cat "$file")"); done
    mapfile -t -O ${#pids[@]} pids < <(daemons; job_processes)
    [ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true
    for _ in $(seq 50); do alive "${pids[@]}" || break; sleep 0.1; done
    ! alive "${pids[@]}" || kill -KILL "${pids[@]}" 2>/dev/null || true
    rm -rf "$dir"
    echo "slurm-local: down" >&2
}

alive() { # PID...: whether any of them still runs
    local pid
    for pid in "$@"; do [ ! -e "/proc/$pid" ] || return 0; done
    return 1
}

case ${1:-} in
    up) up "${@:2}" ;;
    down) down "${@:2}" ;;
    env)
        [ -e "$conf" ] || fail "it is down; start it first: bash env/slurm-local.sh up"
        echo "export SLURM_CONF=$conf"
        # Jobs would count the NUMA domains of the machine, which are not those of a virtual node.
        sed -n 's/^NodeName=n1 .* SocketsPerBoard=\([0-9]*\).*/export SITE_RANKS_PER_NODE=\1/p' "$conf" ;;
    status)
        is_up || { echo "slurm-local: it is down" >&2; exit 3; }
        export SLURM_CONF=$conf
        sinfo --Node --format "%N %t %c CPUs"
        squeue ;;
    *) fail "expected up, env, status or down, got '${1:-}'" ;;
esac
