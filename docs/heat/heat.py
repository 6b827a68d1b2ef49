#!/usr/bin/env python3
"""Heat on a square plate: solve it, learn to predict it on two ranks, and draw truth, forecast and error.

    python docs/heat/heat.py FOLDER [--side 24] [--times 12] [--epochs 15] [--ranks 2]

docs/meshes.md explains the steps. The heat equation is solved by backward Euler steps with SciPy. Eight trajectories
begin with warm spots at random places; the rim is kept at 0.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from scipy.sparse import coo_matrix, diags, identity
from scipy.sparse.linalg import factorized

TRAJECTORIES = 8


def solve(side: int, times: int) -> tuple[np.ndarray, np.ndarray]:
    """(u (8 × times, n, 1) float32, the rim uint8 (n,)) on a grid of side × side nodes, node i × side + j."""
    number = np.arange(side * side).reshape(side, side)
    pairs = np.concatenate([np.stack([number[1:], number[:-1]], -1), np.stack([number.T[1:], number.T[:-1]], -1)])
    first, second = pairs.reshape(-1, 2).T
    ends = np.concatenate([first, second]), np.concatenate([second, first])
    near = coo_matrix((np.ones(len(ends[0])), ends)).tocsr()
    laplacian = diags(np.asarray(near.sum(1)).ravel()) - near
    step = factorized((identity(side * side) + 0.8 * laplacian).tocsc())
    rim = np.ones((side, side), bool)
    rim[1:-1, 1:-1] = False
    draw, places, found = np.random.default_rng(1), np.indices((side, side)).reshape(2, -1).T / (side - 1), []
    for _ in range(TRAJECTORIES):
        spots = draw.random((3, 2))
        u = np.exp(-((places[:, None] - spots) ** 2).sum(2) / 0.02).sum(1) * ~rim.ravel()
        for _ in range(times):
            found.append(u.astype(np.float32))
            u = step(u) * ~rim.ravel()
    return np.stack(found)[:, :, None], rim.ravel().astype(np.uint8)


def run(*command: object) -> None:
    """Run a command of this Python. Ends the program where it fails."""
    print("$", *command, flush=True)
    done = subprocess.run([sys.executable if word == "python" else str(word) for word in command])
    if done.returncode:
        sys.exit(done.returncode)


def main() -> None:
    """Do it all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--side", type=int, default=24, help="nodes along a side (default: 24)")
    parser.add_argument("--times", type=int, default=12, help="snapshots of a trajectory (default: 12)")
    parser.add_argument("--epochs", type=int, default=15, help="epochs (default: 15)")
    parser.add_argument("--ranks", type=int, default=2, help="MPI ranks (default: 2)")
    given = parser.parse_args()
    folder, side, times = given.folder, given.side, given.times
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "run", ignore_errors=True)
    u, rim = solve(side, times)
    np.save(folder / "u.npy", u)
    np.save(folder / "rim.npy", rim)
    graph, tools = folder / "heat.h5", ("python", "-m", "partition_tools")
    run(*tools, "generate", "grid", "-o", graph, "--shape", f"{side},{side}", "--force")
    fields = f"u={folder / 'u.npy'}", "--given", folder / "rim.npy"
    run(*tools, "snapshots", graph, *fields, "--trajectories", times, "--split", "0.75/0.125/0.125")
    run(*tools, "partition", "add", graph, "--ranks", given.ranks)
    on_ranks = ("mpiexec", "-n", given.ranks, "python", "-m", "hpcgnn")
    model = "--model", "meshgraphnet", "--layers", 3, "--hidden", 16
    learning = "--noise", 0.02, "--lr", 0.01, "--epochs", given.epochs, "--eval-every", 10
    run(*on_ranks, "train", "--graph", graph, "--task", "fields", *model, *learning, "--run-dir", folder / "run")
    start = (TRAJECTORIES - 1) * times  # the last trajectory is for the test
    steps = "--start", start, "--steps", times - 1
    drawn = "--draw", f"{times // 2},{times - 1}"
    run(*on_ranks, "rollout", folder / "run", *steps, *drawn, "-o", folder / "forecast.h5", "--force")
    print(f"picture in {folder / 'forecast-fields.png'}")


if __name__ == "__main__":
    main()
