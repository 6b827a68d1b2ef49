# shellcheck shell=bash
# Sourced by the studies, after common.sh. A study is a list of points, each one run of hpcgnn train with a directory of its own under
# OUT. Points of the same number of ranks form one job array; a report job comes after all of them, whatever became of each.
# Given again, a study submits what is not complete yet, and the report. With --launch nothing is submitted: the points run here, one
# after another, each started as `LAUNCH RANKS COMMAND`.
# Defines: parse_study, add_repetitions, add_point, submit_study. A study may set report_options, the options of hpcgnn report.

# Options that all studies share; what they do not know goes to `study_option OPTION VALUE`, which the study may define.
parse_study() {
    site=${HPCGNN_SITE:-plain} dry="" sbatch_options="" graph="" out="" numbers="1,2,4" repeat=3 launch="" at_once="" options=() report_options=()
    while [ $# -gt 0 ]; do
        case $1 in
            --site) need "$@"; site=$2; shift 2 ;;
            --graph) need "$@"; graph=$2; shift 2 ;;
            --out) need "$@"; out=$2; shift 2 ;;
            --ranks) need "$@"; numbers=$2; shift 2 ;;
            --repeat) need "$@"; repeat=$2; shift 2 ;;
            --launch) need "$@"; launch=$2; shift 2 ;;
            --at-once) need "$@"; at_once=$2; shift 2 ;;
            --sbatch) need "$@"; sbatch_options=$2; shift 2 ;;
            --dry-run) dry=yes; shift ;;
            -h | --help) usage ;;
            --) shift; options=("$@"); break ;;
            --*) need "$@"; study_option "$1" "$2" || fail "unknown option $1; bash jobs/$script --help lists them"; shift 2 ;;
            *) fail "unknown argument $1; options of hpcgnn train come after --" ;;
        esac
    done
    [ -n "$out" ] || fail "--out is required: the directory of the study"
    [[ $numbers =~ ^[1-9][0-9]*(,[1-9][0-9]*)*$ ]] || fail "--ranks: expected numbers of ranks such as 1,2,4,8, got '$numbers'"
    [[ $repeat =~ ^[1-9][0-9]*$ ]] || fail "--repeat: expected a number of repetitions of at least 1, got '$repeat'"
    IFS=, read -ra rank_counts <<< "$numbers"
    load_site "$site"
    partition=$(value_of --partition p $sbatch_options)
    if [ -z "$launch" ]; then
        choose_ranks_per_node "$partition"
        site_ranks=$ranks_per_node
        threads=$(($(cores_per_node "$partition") / site_ranks))
    fi
    declare -gA points=() # number of ranks -> lines of quoted arguments of train.sbatch
    declare -gA after=()  # number of ranks -> job that must have succeeded before
    declare -ga every=()  # all run directories, done or not
    missing=0
}

# sbatch options for so many ranks: whole nodes, each filled with one rank per NUMA domain, the same threads for every point of a curve
size_options() {
    local ranks=$1 per_node=$(($1 < site_ranks ? $1 : site_ranks))
    echo "--nodes=$(((ranks + per_node - 1) / per_node)) --ntasks=$ranks --ntasks-per-node=$per_node --cpus-per-task=$((threads > 0 ? threads : 1))"
}

# Would hpcgnn and SLURM take these jobs? check_study RANKS,RANKS GRAPH OPTIONS...
check_study() {
    local ranks
    check_writable "$out"
    for ranks in "${rank_counts[@]}"; do
        [ -z "$launch" ] || break
        # shellcheck disable=SC2046,SC2086
        sbatch_test "$jobs/train.sbatch" $(size_options "$ranks") $sbatch_options
    done
    (trap - ERR; hpcgnn train --dry-run "$1" --graph "$2" --run-dir "$out/dry-run" "${@:3}") || exit $?
}

# add_point RANKS NAME GRAPH OPTIONS...: one run, in OUT/NAME, unless it is complete
add_point() {
    local ranks=$1 run_dir=$out/$2 graph=$3
    every+=("$run_dir")
    [ ! -e "$run_dir/summary.json" ] || return 0
    missing=$((missing + 1))
    points[$ranks]+="$(printf '%q ' "$graph" "$run_dir" "${@:4}")"$'\n'
}

# The runs on the current number of ranks
add_repetitions() {
    local run
    for run in $(seq "$repeat"); do
        add_point "$ranks" "sar-p$ranks-r$run" "$graph" "${options[@]}"
    done
}

submit() { # sbatch OPTIONS...: prints the number of the job
    local said
    said=$(sbatch --parsable "$@" 2>&1) || fail "sbatch refused a job: $(echo "$said" | tail -n 1)"
    echo "${said%%;*}"
}

# Refuse to submit the points of jobs that still wait or run
check_idle() {
    [ ! -e "$out/jobs.txt" ] || [ -z "$(squeue -h -j "$(paste -sd, "$out/jobs.txt")" 2>/dev/null)" ] ||
        fail "jobs of this study are still in the queue ($(paste -sd' ' "$out/jobs.txt")); wait for them, or scancel them first"
}

# run_here REPORT OPTIONS...: all points on this machine, one after another, then the report
run_here() {
    local ranks given log failed=0
    mkdir -p "$out/log"
    for ranks in "${rank_counts[@]}"; do
        while read -r -u 3 given; do
            eval "given=($given)"
            log=${given[1]#"$out/"}
            log=$out/log/${log//\//-}.txt
            echo "$script: $(date +%T) ${given[1]}"
            # shellcheck disable=SC2086
            $launch "$ranks" python -P -m hpcgnn train --graph "${given[0]}" --run-dir "${given[1]}" --resume "${given[@]:2}" \
                > "$log" 2>&1 < /dev/null || { failed=$((failed + 1)); echo "$script: failed with code $?, see $log: $(tail -n 1 "$log")" >&2; }
        done 3< <(echo -n "${points[$ranks]:-}")
    done
    (trap - ERR; hpcgnn report "${every[@]}" --out "$out/report" "$@") || [ $? = 3 ] || fail "no report was made; see the lines above"
    [ "$failed" = 0 ] || fail "$failed of $missing runs failed; give the command again to fill what is missing"
}

submit_study() {
    local ranks file count job jobs_now=()
    echo "$script: ${#every[@]} runs in $out, $((${#every[@]} - missing)) complete, $missing to do"
    for ranks in "${rank_counts[@]}"; do
        [ -z "${points[$ranks]:-}" ] ||
            echo "  $ranks ranks, ${launch:-$(size_options "$ranks")}: $(echo -n "${points[$ranks]}" | wc -l) runs"
    done
    if [ -n "$dry" ]; then echo "dry run: all is well, nothing was submitted"; return; fi
    if [ -n "$launch" ]; then run_here "${report_options[@]}"; return; fi
    check_idle
    mkdir -p "$out/log"
    : > "$out/jobs.txt"
    for ranks in "${rank_counts[@]}"; do
        [ -n "${points[$ranks]:-}" ] || continue
        file=$out/log/points-$ranks.txt
        echo -n "${points[$ranks]}" > "$file"
        count=$(wc -l < "$file")
        # shellcheck disable=SC2046,SC2086
        job=$(submit --array="0-$((count - 1))${at_once:+%$at_once}" --job-name="$(basename "$out")-$ranks" --output="$out/log/%A_%a.txt" \
            ${after[$ranks]:+--dependency=afterok:${after[$ranks]} --kill-on-invalid-dep=yes} \
            $(size_options "$ranks") $sbatch_options "$jobs/train.sbatch" --site "$site" --points "$file")
        jobs_now+=("$job")
        echo "$job" >> "$out/jobs.txt"
    done
    # afterany: the report says which points failed
    job=$(submit --job-name="$(basename "$out")-report" --output="$out/log/report-%j.txt" ${partition:+--partition=$partition} \
        ${jobs_now[0]:+--dependency=afterany:$(IFS=:; echo "${jobs_now[*]}")} \
        "$jobs/report.sbatch" --site "$site" --out "$out/report" "${report_options[@]}" "${every[@]}")
    echo "$job" >> "$out/jobs.txt"
    echo "submitted: ${jobs_now[*]:-no runs}, then the report as $job, in $out/report; give the command again to fill what is missing"
}
