#!/usr/bin/env bash
# Communication schedules on the same graph and model: accuracy against bytes and time. Run it on a login node; it submits, and ends
# with a report.
#
#   bash jobs/schedules.sh --graph graph.h5 --out runs/schedules --ranks 4 [options] -- [options of hpcgnn train]
#
# --only NAME,NAME          these variants alone (all that are listed below)         --repeat N      seeds of each, 0, 1, 2, … (3)
# --variant NAME="OPTIONS"  one more variant, or other options for one of these; may be given again
# --baseline NAME           sar, with which all others are compared, or none         --dry-run       check everything, submit nothing
# --launch "mpiexec -n"     submit nothing: run here, one after another, each run as `mpiexec -n RANKS COMMAND`. With
#                           --launch "bash jobs/bench/slow_network.sh 100mbit" that is over links of a given bandwidth.
# --site NAME               a file of jobs/sites (plain)     --at-once N   tasks of a job array that may run together
# --sbatch "…"              more options of sbatch for the runs
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
    [tma-super-nodes]="--schedule tma --average-steps 10 --assignment super-nodes"
    [tma-metis]="--schedule tma --average-steps 10"
    [tma-random-nodes]="--schedule tma --average-steps 10 --assignment random-nodes"
)
names=(sar sar-bf16 sar-int8 lazy bns stale tma-super-nodes tma-metis tma-random-nodes)
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

baselines="sar none"
parse_study "$@"
[ -n "$graph" ] || fail "--graph is required: a file with a map for each number of ranks (jobs/partition.sbatch)"
[ -z "$only" ] || IFS=, read -ra wanted <<< "$only"
for name in "${wanted[@]:-${names[@]}}"; do
    [ -n "${variant[$name]:-}" ] || fail "--only: expected some of $(IFS=,; echo "${names[*]}"), got '$name'"
done
[ -z "$only" ] || names=("${wanted[@]}")
[[ " ${names[*]} " == *" sar "* ]] || baseline=none
# Each is checked, for each has options of its own that may not fit.
for name in "${names[@]}"; do
    # shellcheck disable=SC2086
    check_study "$numbers" "$graph" "${options[@]}" ${variant[$name]}
done
for ranks in "${rank_counts[@]}"; do
    for name in "${names[@]}"; do
        for seed in $(seq 0 $((repeat - 1))); do
            # shellcheck disable=SC2086
            add_point "$ranks" "$name/p$ranks-s$seed" "$graph" "${options[@]}" ${variant[$name]} --seed "$seed"
        done
    done
done
report_options=(--label-by folder)
[ "$baseline" = none ] || report_options+=(--baseline sar)
submit_study
