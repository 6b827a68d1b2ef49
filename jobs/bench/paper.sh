#!/usr/bin/env bash
# Makes the tables of docs/performance.md again, by the commands of that page: each with its output, its spread, the machine and the date.
#
#   bash jobs/bench/paper.sh --list                      the sections
#   bash jobs/bench/paper.sh --out runs/paper            all: hours
#   bash jobs/bench/paper.sh --only memory-of-a-rank     one section, or several
#
# In the folder: NAME/table.md of each section, and the output of its commands.
exec python -P "$(dirname "${BASH_SOURCE[0]}")/paper.py" "$@"
