# shellcheck shell=bash
# Sourced by every script in jobs/: a strict shell whose failures name the command, one-line errors, the site, and the checks that can
# be made before a job is queued. Defines: jobs, project, script; fail, need, usage, load_site, hpcgnn, partition_tools.
set -Eeuo pipefail

jobs=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
project=$(dirname "$jobs")
script=${script:-$(basename "$0")}
trap 'code=$?; echo "$script: failed with code $code at line $LINENO of $(basename "${BASH_SOURCE[0]}"): $BASH_COMMAND" >&2' ERR

# A mistake of the user: one line, code 2. Not through the trap above, which is for what was not foreseen.
fail() { trap - ERR; echo "$script: error: $*" >&2; exit 2; }

# need "$@": there is a value that follows an option on the command line
need() { [ $# -ge 2 ] || fail "$1 needs a value; see bash jobs/$script --help"; }

# --help: the comment at the head of the script, without the options of sbatch. Ends the script.
usage() { sed -n '2,$ { /^#SBATCH/d; /^#/!q; s/^# \{0,1\}//p }' "$jobs/$script"; exit 0; }

# quoted WORDS...: as a shell would read them again, with a blank before each
quoted() { [ $# = 0 ] || printf ' %q' "$@"; }

# Never the package of the directory that we happen to be in: only the installed one has its kernels.
hpcgnn() { python -P -m hpcgnn "$@"; }
partition_tools() { python -P -m partition_tools "$@"; }

load_site() { # NAME: a file in jobs/sites, or a path
    local file=$1
    case $file in */*) ;; *) file=$jobs/sites/$file.sh ;; esac
    [ -r "$file" ] || fail "no site '$1': expected one of $(cd "$jobs/sites" && echo *.sh | sed 's/\.sh//g; s/ /, /g'), or the path of a file like those"
    set +u # what sites source (modules, environments) is rarely strict
    # shellcheck disable=SC1090
    . "$file"
    set -u
    site_file=$file
    [ -z "${SITE_STAGE:-}" ] || fail "SITE_STAGE in $file does nothing any more: take HPCGNN_FORK_SERVER=1, or a container, in its place"
    command -v python >/dev/null || fail "site '$1' gives no python; make one with env/setup.sh, or activate yours in $file"
    python -P -c 'import hpcgnn' 2>/dev/null || fail "the python of site '$1' ($(command -v python)) has no hpcgnn: install it there (env/README.md)"
}

# "DOMAINS CORES ALL" of the machine that this shell runs on: NUMA domains and cores that the shell may use, and cores that there are.
# Hardware threads of a core count once. 0 domains where the system does not tell.
this_machine() {
    python -P -c 'from hpcgnn.cores import domains_of, online, physical, usable
print(len(domains_of(usable())), physical(usable()), physical(online()))'
}

# Sets ranks_per_node where nobody says otherwise and this is no compute node: one rank for each socket. That is one for each NUMA
# domain, so that no rank computes on far memory, unless the firmware splits sockets. A job counts the domains of its node itself.
choose_ranks_per_node() { # [PARTITION]
    ranks_per_node=${SITE_RANKS_PER_NODE:-}
    if [ -z "$ranks_per_node" ]; then
        ranks_per_node=$(sinfo -h -o %X ${1:+-p "$1"} 2>/dev/null | head -n 1 | tr -d '+')
        echo "$script: ranks of a node: ${ranks_per_node:-?}, by the sockets that SLURM knows; NUMA domains may be more: SITE_RANKS_PER_NODE in $site_file"
    fi
    [[ $ranks_per_node =~ ^[1-9][0-9]*$ ]] ||
        fail "SLURM does not tell the sockets of its nodes (got '$ranks_per_node'); set SITE_RANKS_PER_NODE in $site_file"
}

# Cores of a node. SLURM may count hardware threads as CPUs.
cores_per_node() { # [PARTITION]
    local found=${SITE_CPUS_PER_NODE:-} sockets="" cores="" cpus=""
    if [ -z "$found" ]; then
        read -r sockets cores cpus < <(sinfo -h -o '%X %Y %c' ${1:+-p "$1"} 2>/dev/null | head -n 1 | tr -d '+') || true
        [[ $sockets$cores$cpus =~ ^[0-9]+$ ]] && found=$((sockets * cores < cpus ? sockets * cores : cpus))
    fi
    [[ $found =~ ^[1-9][0-9]*$ ]] || fail "SLURM does not tell the cores of its nodes (got '$found'); set SITE_CPUS_PER_NODE in $site_file"
    echo "$found"
}

# value_of FLAG SHORT WORDS...: the last value given to an sbatch option among words such as "--nodes=2 -n 4"
value_of() {
    local flag=$1 short=$2 value="" previous="" word
    shift 2
    for word; do
        case $word in "$flag="*) value=${word#*=} ;; -"$short"[0-9]*) [ -z "$short" ] || value=${word#-?} ;; esac
        case $previous in "$flag" | "-${short:-none}") value=$word ;; esac
        previous=$word
    done
    echo "$value"
}

# Would SLURM take this job? sbatch_test SCRIPT OPTIONS...
sbatch_test() {
    local said
    command -v sbatch >/dev/null || fail "no sbatch here: use a login node of the cluster, or a SLURM of your own (env/slurm-local.sh)"
    said=$(sbatch --test-only "${@:2}" "$1" 2>&1) || fail "SLURM would not take this job (sbatch ${*:2}): $(echo "$said" | tail -n 1 | sed 's/^sbatch: error: //')"
}

check_writable() { # DIRECTORY: can it be made and written, and is there space? Leaves nothing behind.
    local folder said
    folder=$(realpath -m "$1")
    while [ ! -e "$folder" ]; do folder=$(dirname "$folder"); done
    [ -d "$folder" ] || fail "$folder is not a directory; choose another place than $1"
    said=$( { head -c 1048576 /dev/zero > "$folder/.hpcgnn-check.$$"; } 2>&1) || {
        rm -f "$folder/.hpcgnn-check.$$"
        fail "cannot write to $folder (for $1): ${said##*: }; choose a place that is writable and has space"
    }
    rm -f "$folder/.hpcgnn-check.$$"
}
