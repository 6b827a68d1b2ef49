#!/usr/bin/env bash
# Every communication schedule that this version of hpcgnn has, on the same graph and model: accuracy against bytes and time. Run it on a
# login node; it submits, and ends with a report.
#
#   bash jobs/schedules.sh --graph graph.h5 --out runs/schedules --ranks 4 [options] -- [options of hpcgnn train]
#
# --repeat N       seeds of each point, 0, 1, 2, … (3)                            --site NAME    a file of jobs/sites (plain)
# --baseline NAME  compared with one-shot exchange, or none                       --dry-run      check everything, submit nothing
# --at-once N      tasks of a job array that may run together                     --sbatch "…"   more options of sbatch for the runs
script=schedules.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
. "$jobs/lib/study.sh"
study_option() { return 1; }

parse_study "$@"
[ -n "$graph" ] || fail "--graph is required: a file with a map for each number of ranks (jobs/partition.sbatch)"
names=$(python -P -c 'from hpcgnn.schedules.registry import SCHEDULES; print(*SCHEDULES)') || fail "the schedules cannot be listed; see the lines above"
# What a schedule cannot do without, unless it is given after --.
declare -A needs=([tma]="--average-steps 10")
case " ${options[*]}" in *" --average-"*) needs[tma]="" ;; esac
# Each is checked, for each has options of its own that may not fit.
for name in $names; do
    # shellcheck disable=SC2086
    check_study "$numbers" "$graph" ${needs[$name]:-} "${options[@]}" --schedule "$name"
done
for ranks in "${rank_counts[@]}"; do
    for name in $names; do
        for seed in $(seq 0 $((repeat - 1))); do
            # shellcheck disable=SC2086
            add_point "$ranks" "$name-p$ranks-s$seed" "$graph" ${needs[$name]:-} "${options[@]}" --schedule "$name" --seed "$seed"
            [ "$baseline" = none ] || [ "$name" != sar ] ||
                add_point "$ranks" "one-shot-p$ranks-s$seed" "$graph" "${options[@]}" --schedule sar --seed "$seed" --halo-buffer "$one_shot"
        done
    done
done
submit_study
