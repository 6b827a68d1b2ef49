#!/usr/bin/env bash
# Runs the suite of performance regressions (checks.py) under SLURM, and writes JUnit's XML.
#
# Usage: bash jobs/reframe/run.sh [--site NAME] [--out DIR] [options of reframe]
#
# --site NAME    ReFrame's settings: a file of jobs/reframe/sites, or a path (default: local, for env/slurm-local.sh)
# --out DIR      everything that is left behind (default: runs/reframe): junit.xml, report.json, output/, perflogs/, stage/
#
# Examples:
#   bash jobs/reframe/run.sh                                what the local SLURM says
#   bash jobs/reframe/run.sh --site mine.py -n Training     one kind of test, on a cluster
#   bash jobs/reframe/run.sh -l                             the list of tests; runs none
#
# It needs the extra `reframe` (pip install '.[reframe]') and no MPI of its own.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
fail() { echo "run.sh: error: $*" >&2; exit 2; }

site=local out=runs/reframe options=() action=(--run)
while [ $# -gt 0 ]; do
    case $1 in
        --site | --out) [ $# -ge 2 ] || fail "$1 needs a value"; [ "$1" = --site ] && site=$2 || out=$2; shift 2 ;;
        -h | --help) sed -n '2,$ { /^#/!q; s/^# \{0,1\}//p }' "${BASH_SOURCE[0]}"; exit 0 ;;
        -l | -L | --list | --list-detailed | --dry-run) action=("$1"); shift ;;
        *) options+=("$1"); shift ;;
    esac
done
case $site in */* | *.py) file=$site ;; *) file=$here/sites/$site.py ;; esac
[ -r "$file" ] || fail "no site '$site': expected a file of $here/sites, or the path of one like those"
command -v reframe >/dev/null || fail "no reframe in this environment: pip install -c env/constraints.txt '.[reframe]'"
command -v sbatch >/dev/null || [ "${action[0]}" != --run ] || fail "no sbatch here: start a SLURM (bash env/slurm-local.sh up)"
mkdir -p "$out"
out=$(cd "$out" && pwd -P)
exec reframe --config-file "$file" --checkpath "$here/checks.py" --prefix "$out" --perflogdir "$out/perflogs" \
    --report-junit "$out/junit.xml" --report-file "$out/report.json" --keep-stage-files --save-log-files "${action[@]}" ${options[@]+"${options[@]}"}
