# shellcheck shell=bash
# Sourced by the *.sbatch scripts, after common.sh: what happens inside an allocation. Counts come from SLURM_* and from nowhere else.
# Defines: require_job, count_ranks, provenance, striped, launch, killed_rank; and dry_run, the check of such a script on a login node.

require_job() {
    [ -n "${SLURM_JOB_ID:-}" ] && [ -n "${SLURM_JOB_NUM_NODES:-}" ] ||
        fail "this is no SLURM job (SLURM_JOB_ID is not set): submit it with sbatch jobs/$script, or check it with --dry-run"
    # Older SLURMs do not say when the job ends; --stop-before asks for it.
    if [ -z "${SLURM_JOB_END_TIME:-}" ]; then
        SLURM_JOB_END_TIME=$(date -d "$(squeue -h -j "$SLURM_JOB_ID" -o %e)" +%s 2>/dev/null) && export SLURM_JOB_END_TIME || unset SLURM_JOB_END_TIME
    fi
}

# ranks, ranks_per_node, threads: as asked for with --ntasks, --ntasks-per-node, --cpus-per-task; else one rank for each NUMA domain of
# this node, and a thread for each core. whole_cores: of this node, if the job has it for itself; else 0
count_ranks() {
    local nodes=$SLURM_JOB_NUM_NODES domains cores all cpus=${SLURM_CPUS_ON_NODE:-1} # SLURM may count hardware threads
    read -r domains cores all < <(this_machine) || fail "cannot read the cores and NUMA domains of $(hostname); see the lines above"
    [ "$cores" -ge "$cpus" ] || cpus=$cores
    whole_cores=$((cores == all ? all : 0))
    if [ -n "${SLURM_NTASKS:-}" ]; then
        ranks=$SLURM_NTASKS
        ranks_per_node=${SLURM_NTASKS_PER_NODE:-$(((ranks + nodes - 1) / nodes))}
    else
        ranks_per_node=${SITE_RANKS_PER_NODE:-$domains}
        [ "$ranks_per_node" != 0 ] || choose_ranks_per_node "${SLURM_JOB_PARTITION:-}"
        ranks=$((nodes * ranks_per_node))
    fi
    [[ $ranks =~ ^[1-9][0-9]*$ ]] || fail "SLURM_NTASKS is '$ranks': expected at least one task (--ntasks)"
    threads=${SLURM_CPUS_PER_TASK:-$((cpus / ranks_per_node))}
    [ "$threads" -ge 1 ] || threads=1
    # OMP_PROC_BIND is the site's to set: where srun does not bind, it would put the threads of all ranks on the same first cores.
    export SLURM_CPUS_PER_TASK=$threads OMP_NUM_THREADS=$threads
}

# provenance DIRECTORY ARGS...: what a reader of the results needs to do this again, in DIRECTORY/jobs/JOB[.RESTART]
provenance() {
    local out=$1/jobs/$SLURM_JOB_ID${SLURM_RESTART_COUNT:+.$SLURM_RESTART_COUNT}
    shift
    mkdir -p "$out" 2>/dev/null || fail "cannot write $out; choose a directory that is writable and has space"
    {
        cp "$0" "$out/script"
        cp "$site_file" "$out/site"
        {
            echo "command: $(scontrol show job "$SLURM_JOB_ID" | sed -n 's/^ *Command=//p' | head -n 1)"
            echo "arguments:$(quoted "$@")"
            echo "job: $SLURM_JOB_ID${SLURM_ARRAY_JOB_ID:+ (${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID)}, restart ${SLURM_RESTART_COUNT:-0}"
            echo "cluster: ${SLURM_CLUSTER_NAME:-?}, partition ${SLURM_JOB_PARTITION:-?}"
            echo "started: $(date -Iseconds)"
            echo "ranks: $ranks on $SLURM_JOB_NUM_NODES nodes, $threads threads each"
            echo "commit: $(git -C "$project" describe --always --dirty --abbrev=40 2>/dev/null || echo 'not a git checkout')"
            echo "slurm: $(srun --version)"
            echo "$(uname -srm); $(lscpu | sed -n 's/^Model name: *//p' | head -n 1)"
        } > "$out/job.txt"
        scontrol show hostnames "$SLURM_JOB_NODELIST" > "$out/hosts.txt"
        list_versions > "$out/versions.txt"
        # Of the environment only what can change results or times: the rest may hold secrets, and run directories are published.
        env | grep -E '^(SLURM|SBATCH|SRUN|HPCGNN|SITE|OMP|KMP|GOMP|MKL|MPI|I_MPI|MPIR|MPICH|OMPI|PMIX?|PRTE|UCX|FI|PSM[23]?|PSM_|CCL|LD_|LOADED)[A-Z0-9_]*=' |
            grep -viE '^[A-Z0-9_]*(TOKEN|SECRET|PASSWORD|KEY)[A-Z0-9_]*=' | sort > "$out/environment.txt"
    } 2> >(sed "s/^/provenance: /" >&2) || fail "cannot write $out; choose a directory that is writable and has space"
}

list_versions() {
    python --version
    python -P -c 'import importlib.metadata as m; print(*sorted({f"{d.name}=={d.version}" for d in m.distributions()}), sep="\n")'
}

# striped FILE: where to make a large file that is then moved to FILE. On Lustre in a folder beside it whose files lie on all of its servers,
# or all ranks would read from one; a file that is moved keeps its layout. Elsewhere FILE itself.
striped() {
    local folder
    folder=$(dirname "$1")/.striped-$SLURM_JOB_ID
    if command -v lfs >/dev/null && mkdir -p "$folder" && lfs setstripe -c -1 -S 1M "$folder" 2>/dev/null; then
        echo "$folder/$(basename "$1")"
    else
        rmdir "$folder" 2>/dev/null || true
        echo "$1"
    fi
}

# The launcher that belongs to the MPI library that mpi4py will load: SITE_LAUNCHER, else srun if SLURM speaks the library's PMI, else
# mpiexec of the environment that python is of; one from elsewhere would start ranks that do not find each other.
choose_launcher() {
    local library kind spread bind=""
    launcher=${SITE_LAUNCHER:-}
    case $launcher in srun*) return 0 ;; esac
    library=$(python -P -c 'import mpi4py; mpi4py.rc.initialize = mpi4py.rc.finalize = False; from mpi4py import MPI; print(MPI.Get_library_version())' 2>&1) ||
        fail "no MPI library can be loaded: $(echo "$library" | tail -n 1); load the site's module in $site_file"
    case $library in
        *"Open MPI"*) kind=pmix spread="--map-by ppr:$ranks_per_node:node" bind=":PE=$threads --bind-to core" ;;
        *"CRAY MPICH"*) kind=cray_shasta spread="-ppn $ranks_per_node" ;;
        "MPICH Version"*) kind=pmi2 spread="-ppn $ranks_per_node" bind=" -bind-to core:$threads" ;;
        *) kind=pmi2 spread="-ppn $ranks_per_node" ;; # Intel MPI binds each rank to its share of the node
    esac
    # These binders know the machine, not what the job has of it.
    [ "${whole_cores:-0}" -lt $((ranks_per_node * threads)) ] || spread+=$bind
    if [ -z "$launcher" ] && srun --mpi=list 2>&1 | grep -qw "$kind"; then launcher="srun --mpi=$kind"; return; fi
    launcher=${launcher:-mpiexec}
    [ "$launcher" != mpiexec ] || [ ! -x "$(dirname "$(command -v python)")/mpiexec" ] || launcher=$(dirname "$(command -v python)")/mpiexec
    launcher+=" ${SITE_MPIEXEC_OPTIONS:-$spread}"
}

# Neighbouring ranks on neighbouring cores, each on its own, one thread for each core, where SLURM can bind at all
binding() {
    local plugins
    plugins=$(scontrol show config | grep -E '^TaskPlugin ') || true
    case $plugins in
        *affinity*) echo "--distribution=block:block --cpu-bind=cores --hint=nomultithread" ;;
        *cgroup*) echo "--distribution=block:block --cpu-bind=cores" ;; # it does not know hints
    esac
}

# MPICH names a segment of shared memory after job and step, and killed ranks leave theirs behind. A requeued job has its old number, and
# counts its steps from 0 again: on the same node MPI_Init would read what is left of the killed step and fail. So as many
# steps as were started before are used up first.
skip_used_steps() {
    local _
    for _ in $(seq "${SLURM_RESTART_COUNT:-0}"); do srun --nodes=1 --ntasks=1 --mpi=none true 2>/dev/null || true; done
}

# killed_rank: "rank 1 on node n07 was killed, …" if srun, or else a rank beside the killed one, has said so in this job's output since
# `launch`; nothing otherwise, or where the output is no file
killed_rank() {
    local found
    [ -f "$output" ] || return 0
    found=$(tail -c "+$((said_before + 1))" "$output" | sed -nE \
        -e 's/^srun: error: ([^ :]+): tasks? ([0-9,-]+): (Killed|Out Of Memory|Bus error).*/1 rank \2 on node \1 was killed/p' \
        -e 's/^hpcgnn: rank ([0-9, -]+) \(([^,)]+).* has ended without finishing.*/2 rank \1 on node \2 was killed/p' | sort -s -k 1,1 | head -n 1)
    [ -z "$found" ] || echo "${found#? }, often for lack of memory: give the job more of it, or more nodes"
}

# launch COMMAND...: run it on all ranks as one step; `code` is then its exit code, `signalled` whether SIGUSR1 was passed on to it,
# `for_good` whether the user asked for it by SIGUSR2
launch() {
    local step command
    output=$(readlink "/proc/$$/fd/2") said_before=0
    [ ! -f "$output" ] || said_before=$(stat -c %s "$output")
    choose_launcher
    # One process of a node opens the modules, and forks its ranks: with launchers that this was tried with.
    case $launcher in *pmi2* | *pmix* | *mpiexec*) export HPCGNN_FORK_SERVER=${HPCGNN_FORK_SERVER:-1} ;; esac
    case $launcher in
        srun*)
            skip_used_steps
            # Without the first two a killed or silently leaving rank makes the others wait until the wall time.
            # shellcheck disable=SC2206
            command=($launcher --kill-on-bad-exit=1 --wait=30 --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$ranks" --cpus-per-task="$threads"
                ${SITE_SRUN_OPTIONS-$(binding)} "$@") ;;
        *)
            # shellcheck disable=SC2206
            command=($launcher -n "$ranks" "$@") ;;
    esac
    echo "$script: job $SLURM_JOB_ID, restart ${SLURM_RESTART_COUNT:-0}, on $SLURM_JOB_NODELIST: ${command[*]}"
    signalled="" for_good=""
    "${command[@]}" &
    step=$!
    # SLURM gives the signal of --signal=B: to this shell alone. USR1: stop, and go on later; USR2, from the user: stop.
    local again=yes answer
    trap 'signalled=yes; again=yes; kill -USR1 $step 2>/dev/null || true' USR1
    trap 'for_good=yes; signalled=yes; again=yes; kill -USR1 $step 2>/dev/null || true' USR2
    code=0
    while [ -n "$again" ]; do # a signal ends `wait`, but not the step
        again="" answer=0
        wait $step || answer=$?
        [ $answer = 127 ] || code=$answer
    done
    trap '' USR1 USR2
}

# dry_run "SBATCH OPTIONS": the number of ranks that this script would get, after asking SLURM whether it would take the job
dry_run() {
    local words nodes per_node memory
    # shellcheck disable=SC2206,SC2207
    words=($(sed -n 's/^#SBATCH //p' "$jobs/$script") $1)
    # shellcheck disable=SC2086
    sbatch_test "$jobs/$script" $1
    nodes=$(value_of --nodes N "${words[@]}")
    per_node=$(value_of --ntasks-per-node "" "${words[@]}")
    ranks=$(value_of --ntasks n "${words[@]}")
    if [ -z "$ranks" ]; then
        # shellcheck disable=SC2086
        [ -n "$per_node" ] || { choose_ranks_per_node "$(value_of --partition p $1)"; per_node=$ranks_per_node; }
        ranks=$((${nodes:-1} * per_node))
    fi
    # What the check of memory looks at, as a job would have it.
    SLURM_NTASKS_PER_NODE=${per_node:-$(((ranks + ${nodes:-1} - 1) / ${nodes:-1}))}
    memory=$(value_of --mem "" "${words[@]}")
    SLURM_MEM_PER_NODE=$(mebibytes "${memory:-${SBATCH_MEM_PER_NODE:-}}")
    export SLURM_NTASKS_PER_NODE SLURM_MEM_PER_NODE
    unset SLURM_MEM_PER_CPU SLURM_CPUS_ON_NODE # of an allocation that this shell may be in
}

# mebibytes SIZE: a size as sbatch takes it (64G, 500M; M if nothing is said); nothing for what is none
mebibytes() {
    [[ $1 =~ ^([0-9]+)([KkMmGgTt]?)$ ]] || return 0
    local number=$((10#${BASH_REMATCH[1]}))
    case ${BASH_REMATCH[2]} in
        [Kk]) echo $((number / 1024)) ;;
        [Gg]) echo $((number * 1024)) ;;
        [Tt]) echo $((number * 1048576)) ;;
        *) echo $number ;;
    esac
}
