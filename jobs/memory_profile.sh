#!/usr/bin/env bash
# Memory of a rank against the number of ranks, phase by phase: one graph, more and more ranks, few epochs. Run it on a login node;
# it submits, and ends with a report.
#
# Usage: bash jobs/memory_profile.sh --graph FILE --out DIR --ranks N,N [options] -- [options of hpcgnn train]
#
# --graph FILE     a graph file with a map for each number of ranks (jobs/partition.sbatch)
# --out DIR        the directory of the study
# --ranks N,N      the numbers of ranks (1,2,4)
# --repeat N       runs of each point (1): memory varies little
# --launch "…"     submit nothing: run here, one after another, each as `… RANKS COMMAND`, such as --launch "mpiexec -n"
# --at-once N      tasks of a job array that may run together
# --site NAME      what differs between clusters: a file of jobs/sites, or a path (HPCGNN_SITE, or plain)
# --dry-run        check everything, submit nothing
# --sbatch "…"     more options of sbatch for the runs
#
# Examples:
#   bash jobs/memory_profile.sh --dry-run --graph graph.h5 --out runs/memory --ranks 1,2,4,8
#   bash jobs/memory_profile.sh --graph graph.h5 --out runs/memory --ranks 1,2,4,8
#
# hpcgnn train --help lists the options after --.
script=memory_profile.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
. "$jobs/lib/study.sh"
study_option() { return 1; }

parse_study --repeat 1 "$@"
[ -n "$graph" ] || fail "--graph is required: a file with a map for each number of ranks (jobs/partition.sbatch)"
# What the user gives comes later and wins.
options=(--profile-memory --epochs 5 "${options[@]}")
check_study "$numbers" "$graph" "${options[@]}"
for ranks in "${rank_counts[@]}"; do
    add_repetitions
done
submit_study
