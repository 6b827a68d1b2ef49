#!/usr/bin/env bash
# The main job, end to end, on a generated graph: set up, generate, partition with METIS, train on 4 MPI ranks.
#
#   bash env/quickstart.sh [DIRECTORY]      results go to DIRECTORY (default: runs/quickstart, made anew)
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
export HPCGNN_VECTOR_PATHS=${HPCGNN_VECTOR_PATHS:-native}
setup_environment plot
cd "$project"
out=${1:-runs/quickstart}
case $out in runs/quickstart) rm -rf "$out" ;; esac
[ ! -e "$out" ] || fail "$out exists; name a new directory"
mkdir -p "$out"

say() { printf '\n== %s\n' "$*"; }
say "1. generate a graph of 20,000 nodes in 10 classes"
python -m partition_tools generate planted -o "$out/graph.h5" --nodes 20000 --degree 15 --features 64 --classes 10 --seed 1
say "2. split it into clusters with METIS, and map the clusters to 1, 2 and 4 ranks"
python -m partition_tools partition add "$out/graph.h5" --ranks 1,2,4
say "3. train GraphSAGE on 4 MPI ranks, full-batch, with sequential aggregation"
export HPCGNN_FORK_SERVER=${HPCGNN_FORK_SERVER:-1} # one import of torch for the ranks of a node, as in job scripts
mpiexec -n 4 hpcgnn train --graph "$out/graph.h5" --model sage --layers 3 --hidden 64 --dropout 0.3 --lr 0.02 --epochs 30 \
    --run-dir "$out/run"
say "done: look at $out/run/curves.png"
how_to_activate
