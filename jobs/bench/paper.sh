#!/usr/bin/env bash
# Makes the tables of docs/performance.md again, by the commands of that page: each with its output, its spread, the machine and the date.
#
#   bash jobs/bench/paper.sh --list                      the sections, and those that no command makes
#   bash jobs/bench/paper.sh --out runs/paper            all: hours
#   bash jobs/bench/paper.sh --only posting-messages     one section, or several
#   bash jobs/bench/paper.sh --quick                     small graphs, also in place of data sets: all commands still work
#
# In the folder: NAME/table.md and CSV files of each section, machine.json, and summary.md, with the rows that were not made again.
exec python -P "$(dirname "${BASH_SOURCE[0]}")/paper.py" "$@"
