#!/usr/bin/env bash
# Communication schedules on the same graph and model: accuracy against bytes and time. Run it on a login node; it submits, and ends
# with a report. Ranks of one node send messages, too, as those of several nodes do.
#
# Usage: bash jobs/schedules.sh --graph FILE --out DIR --ranks N [options] -- [options of hpcgnn train]
#
# --graph FILE     a graph file with a map for each number of ranks (jobs/partition.sbatch)
# --out DIR        the directory of the study
# --ranks N,N      the numbers of ranks (1,2,4)
# --repeat N       seeds of each, 0, 1, 2, … (3)
# --only A,B       these variants alone (all that are listed below)
# --variant NAME="OPTIONS"  one more variant, or other options for one of these; may be given again
# --launch "…"     submit nothing: run here, one after another, each as `… RANKS COMMAND`, such as --launch "mpiexec -n"
#                  With --launch "bash jobs/bench/network/slow_network.sh 100mbit" the runs go over links of a given bandwidth.
# --at-once N      tasks of a job array that may run together
# --site NAME      what differs between clusters: a file of jobs/sites, or a path (HPCGNN_SITE, or plain)
# --dry-run        check everything, submit nothing
# --sbatch "…"     more options of sbatch for the runs
#
# Examples:
#   bash jobs/schedules.sh --dry-run --graph graph.h5 --out runs/schedules --ranks 4 -- --model sage --hidden 128
#   bash jobs/schedules.sh --graph graph.h5 --out runs/schedules --ranks 4 -- --model sage --hidden 128
#
# hpcgnn train --help lists the options after --.
script=schedules.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
. "$jobs/lib/study.sh"

declare -A variant=(
    [sar]="--schedule sar"
    [sar-bf16]="--schedule sar --halo-dtype bf16"
    [sar-int8]="--schedule sar --halo-dtype int8"
    [lazy]="--schedule lazy"
    [bns]="--schedule bns"
    [stale]="--schedule stale"
    [historical]="--schedule historical"
    [batches]="--schedule batches"
    [tma-super-nodes]="--schedule tma --average-steps 10 --partition super-nodes"
    [tma-metis]="--schedule tma --average-steps 10"
    [tma-random-nodes]="--schedule tma --average-steps 10 --partition random-nodes"
)
names=(sar sar-bf16 sar-int8 lazy bns stale historical batches tma-super-nodes tma-metis tma-random-nodes)
only=""
study_option() {
    case $1 in
        --only) only=$2 ;;
        --variant)
            [[ $2 =~ ^[A-Za-z0-9._-]+=. ]] || fail "--variant: expected NAME=\"OPTIONS of hpcgnn train\", got '$2'"
            [ -n "${variant[${2%%=*}]:-}" ] || names+=("${2%%=*}")
            variant[${2%%=*}]=${2#*=} ;;
        *) return 1 ;;
    esac
}

parse_study "$@"
[ -n "$graph" ] || fail "--graph is required: a file with a map for each number of ranks (jobs/partition.sbatch)"
[ -z "$only" ] || IFS=, read -ra wanted <<< "$only"
for name in "${wanted[@]:-${names[@]}}"; do
    [ -n "${variant[$name]:-}" ] || fail "--only: expected some of $(IFS=,; echo "${names[*]}"), got '$name'"
done
[ -z "$only" ] || names=("${wanted[@]}")
# Each is checked, for each has options of its own that may not fit.
for name in "${names[@]}"; do
    # shellcheck disable=SC2086
    check_study "$numbers" "$graph" --intra-node messages "${options[@]}" ${variant[$name]}
done
for ranks in "${rank_counts[@]}"; do
    for name in "${names[@]}"; do
        for seed in $(seq 0 $((repeat - 1))); do
            # shellcheck disable=SC2086
            add_point "$ranks" "$name/p$ranks-s$seed" "$graph" --intra-node messages "${options[@]}" ${variant[$name]} --seed "$seed"
        done
    done
done
report_options=(--label-by folder)
submit_study
