#!/usr/bin/env bash
# Weak scaling: generated graphs that grow with the number of ranks. Each graph is made by a job of its own, and the runs on it wait
# for that job. Run it on a login node; it submits, and ends with a report.
#
# Usage: bash jobs/weak_scaling.sh --out DIR --nodes-per-rank N --ranks N,N [options] -- [options of hpcgnn train]
#
# --out DIR            the directory of the study, graphs included
# --nodes-per-rank N   graph nodes for each rank
# --generate "…"       what is generated ("planted --degree 15 --features 128 --classes 16 --seed 1")
# --ranks N,N          the numbers of ranks (1,2,4)
# --repeat N           runs of each point (3)
# --at-once N          tasks of a job array that may run together
# --site NAME          what differs between clusters: a file of jobs/sites, or a path (HPCGNN_SITE, or plain)
# --dry-run            check everything, submit nothing
# --sbatch "…"         more options of sbatch for the runs
#
# Examples:
#   bash jobs/weak_scaling.sh --dry-run --out runs/weak --nodes-per-rank 100000 --ranks 1,2,4,8
#   bash jobs/weak_scaling.sh --out runs/weak --nodes-per-rank 100000 --ranks 1,2,4,8
#
# hpcgnn train --help lists the options after --.
script=weak_scaling.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
. "$jobs/lib/study.sh"
per_rank="" generate="planted --degree 15 --features 128 --classes 16 --seed 1"
study_option() {
    case $1 in --nodes-per-rank) per_rank=$2 ;; --generate) generate=$2 ;; *) return 1 ;; esac
}

parse_study "$@"
[[ $per_rank =~ ^[1-9][0-9]*$ ]] || fail "--nodes-per-rank is required: graph nodes for each rank, got '$per_rank'"
[ -z "$graph" ] || fail "--graph: weak scaling generates its graphs; choose them with --generate and --nodes-per-rank"
# A graph of the same kind, but small, shows whether all options are right.
trial=$(mktemp -d) && trap 'rm -rf "$trial"' EXIT
largest=$(printf '%s\n' "${rank_counts[@]}" | sort -n | tail -n 1)
# shellcheck disable=SC2086
said=$(partition_tools generate $generate --nodes $((1000 + 16 * largest)) -o "$trial/g.h5" 2>&1) || fail "--generate '$generate': $(echo "$said" | tail -n 1)"
partition_tools partition add "$trial/g.h5" --ranks "$numbers" > /dev/null 2>&1
check_study "$numbers" "$trial/g.h5" "${options[@]}"
[ -n "$dry" ] || check_idle
for ranks in "${rank_counts[@]}"; do
    graph=$out/graphs/$ranks.h5
    add_repetitions
    if [ -z "$dry" ] && [ -n "${points[$ranks]:-}" ] && [ ! -e "$graph" ]; then
        mkdir -p "$out/graphs" "$out/log"
        after[$ranks]=$(submit --job-name="$(basename "$out")-graph-$ranks" --output="$out/log/graph-%j.txt" ${partition:+--partition=$partition} \
            "$jobs/partition.sbatch" --site "$site" --graph "$graph" --ranks "$ranks" --generate "$generate --nodes $((per_rank * ranks))")
        echo "  graph for $ranks ranks: job ${after[$ranks]}"
    fi
done
report_options=(--scaling weak)
submit_study
