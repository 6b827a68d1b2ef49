#!/usr/bin/env bash
# Values of options, each with several seeds: the mean of the metric and its deviation. Run it on a login node; it submits a job array,
# and ends with a report. Given again, it runs what is not complete, and what has been added.
#
# Usage: bash jobs/sweep.sh --graph FILE --out DIR --ranks N [options] -- [options of hpcgnn train]
#
# --graph FILE     a graph file with a map for the number of ranks (jobs/partition.sbatch)
# --out DIR        the directory of the sweep
# --ranks N,N      the numbers of ranks (1,2,4)
# --vary "OPTION=VALUE VALUE"  the values of an option of hpcgnn train (true and false of a switch); given again for other options,
#                  all combinations are run. Without it the options after -- are run with several seeds
# --file FILE      more of these, one in a line, as OPTION=VALUE VALUE; lines that begin with # are remarks
# --repeat N       seeds of each, 0, 1, 2, … (3)
# --launch "…"     submit nothing: run here, one after another, each as `… RANKS COMMAND`, such as --launch "mpiexec -n"
# --at-once N      tasks of a job array that may run together
# --site NAME      what differs between clusters: a file of jobs/sites, or a path (HPCGNN_SITE, or plain)
# --dry-run        check everything, submit nothing
# --sbatch "…"     more options of sbatch for the runs
#
# Examples:
#   bash jobs/sweep.sh --graph graph.h5 --out runs/seeds --ranks 4 --repeat 10 -- --config jobs/configs/ogbn-arxiv-gcn.toml
#   bash jobs/sweep.sh --graph graph.h5 --out runs/sweep --ranks 4 --vary "lr=0.01 0.003" --vary "dropout=0.3 0.5" -- --model sage
#   bash jobs/sweep.sh --graph graph.h5 --out runs/here --ranks 2 --vary "model=gcn sage" --launch "mpiexec -n" -- --epochs 50
#
# hpcgnn train --help lists the options after --. The table is study.csv (.tex) in DIR/report.
script=sweep.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
. "$jobs/lib/study.sh"

vary=()
study_option() {
    case $1 in
        --vary) vary+=("$2") ;;
        --file)
            [ -r "$2" ] || fail "--file: cannot read $2 (from $PWD); expected lines such as lr=0.01 0.003"
            while IFS= read -r line || [ -n "$line" ]; do
                line=${line%$'\r'}
                [[ $line =~ ^[[:space:]]*(#|$) ]] || vary+=("$line")
            done < "$2" ;;
        *) return 1 ;;
    esac
}

parse_study "$@"
[ -n "$graph" ] || fail "--graph is required: a file with a map for the number of ranks (jobs/partition.sbatch)"

# folders, changes: all combinations of the values; apart: in how many of these it differs from the first
folders=("") changes=("") apart=(0)
declare -A seen=()
for each in "${vary[@]}"; do
    [[ $each =~ ^[[:space:]]*-*([a-z][a-z_-]*)[[:space:]]*=[[:space:]]*([^[:space:]].*)$ ]] ||
        fail "--vary: expected OPTION=VALUE VALUE, such as \"lr=0.01 0.003\", got '$each'"
    name=${BASH_REMATCH[1]//_/-}
    read -ra values <<< "${BASH_REMATCH[2]}"
    case $name in seed | graph | run-dir | resume | config) fail "--vary $name: expected another option; seeds come from --repeat" ;; esac
    [ -z "${seen[$name]:-}" ] || fail "--vary $name is given twice; put all of its values into one"
    seen[$name]=yes
    named=()
    for value in "${values[@]}"; do
        folder=$name-${value//[^A-Za-z0-9.,+-]/-}
        [[ " ${named[*]} " != *" $folder "* ]] || fail "--vary $name: expected values with names that differ, got $folder twice"
        named+=("$folder")
    done
    old_folders=("${folders[@]}") old_changes=("${changes[@]}") old_apart=("${apart[@]}")
    folders=() changes=() apart=()
    for i in "${!old_folders[@]}"; do
        for j in "${!values[@]}"; do
            case ${values[$j]} in
                true) words="--$name" ;;
                false) words="--no-$name" ;;
                *) words="--$name=${values[$j]}" ;;
            esac
            folders+=("${old_folders[$i]}${old_folders[$i]:+_}${named[$j]}")
            changes+=("${old_changes[$i]}$(quoted "$words")")
            apart+=($((old_apart[i] + (j > 0))))
        done
    done
done
[ ${#vary[@]} -gt 0 ] || folders=(seeds)

# Each value is checked with the first of all others, so that a large sweep is checked in little time.
for i in "${!folders[@]}"; do
    eval "words=(${changes[$i]})" # written above with printf %q
    [ "${apart[$i]}" -gt 1 ] || check_study "$numbers" "$graph" "${options[@]}" "${words[@]}"
done
for ranks in "${rank_counts[@]}"; do
    for i in "${!folders[@]}"; do
        eval "words=(${changes[$i]})"
        for seed in $(seq 0 $((repeat - 1))); do
            add_point "$ranks" "${folders[$i]}/p$ranks-s$seed" "$graph" "${options[@]}" "${words[@]}" --seed "$seed"
        done
    done
done
report_options=(--label-by folder)
submit_study
