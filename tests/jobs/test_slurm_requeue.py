"""The learning curve of a run that is stopped again and again, by everything that ends jobs on a real cluster, has no
seam.
"""

import os
import random
import re
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from run_files import epochs_done, learned, summary
from slurm_helpers import LIMIT_SECONDS, ROOT, UNFINISHED, call

EPOCHS = 150
OPTIONS = f"--model gcn --layers 2 --hidden 16 --epochs {EPOCHS} --eval-every 3 --checkpoint-every 7 --seed 4"
SIZE = "--nodes=1 --ntasks=2 --exclusive --output=%x-%j.txt"

# A layer that waits: a run that goes on until SLURM does something leaves the cores to others.
SLOW = """
import time
from hpcgnn.nn.gcn import GCNConv
from hpcgnn.nn.registry import register

@register("slow")
class Slow(GCNConv):
    def forward(self, *given):
        time.sleep(0.1)
        return super().forward(*given)
"""


@pytest.fixture
def endless(cluster):
    """Options of a run of that layer, for as long as it may last."""
    (cluster.home / "slow.py").write_text(SLOW)
    changed = OPTIONS.replace(f"--epochs {EPOCHS}", "--epochs 100000 --eval-every 0")
    return changed.replace("--model gcn", "--model slow --plugin slow.py")


def wait_for_epoch(cluster, job, run_dir, epoch):
    end = time.monotonic() + LIMIT_SECONDS
    while epochs_done(run_dir) < epoch or cluster.state(job) != "RUNNING":
        assert time.monotonic() < end, f"epoch {epoch} does not come: {cluster.run('squeue -l').stdout}{said(cluster)}"
        assert cluster.state(job) in UNFINISHED, said(cluster)
        time.sleep(0.05)


def said(cluster):
    return "\n".join(path.read_text()[-3000:] for path in sorted(cluster.home.glob("*.txt")))


def kill_one_rank(cluster, job, run_dir):
    """As the kernel does when memory runs out. The job fails, and its owner submits it again."""
    os.kill(process_of_rank(job, 1), signal.SIGKILL)
    return "FAILED"


def process_of_rank(job, rank):
    """The process that was forked for a rank: the proxy that the launcher has started holds its handle."""
    wanted = {f"PMI_RANK={rank}".encode(), f"SLURM_JOB_ID={job}".encode()}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = set((process / "environ").read_bytes().split(b"\0"))
            command = (process / "cmdline").read_bytes()
            handles = [path.read_text() for path in (process / "fdinfo").iterdir()]
        except OSError:
            continue
        if wanted <= environment and b"proxy.py" in command and b"train" in command:
            return int(re.search(r"^Pid:\s+(\d+)", "".join(handles), re.M)[1])
    raise AssertionError(f"rank {rank} of job {job} is not there")


def cancel(cluster, job, run_dir):
    cluster.run(f"scancel {job}")
    return "CANCELLED"


def requeue(cluster, job, run_dir):
    cluster.run(f"scontrol requeue {job}")


def signal_the_script(cluster, job, run_dir):
    """Send the signal that --signal=B:USR1@120 sends before the end of the wall time."""
    cluster.run(f"scancel --batch --signal=USR1 {job}")


def node_failure(cluster, job, run_dir):
    node = cluster.run(f"squeue -h -j {job} -o %N").stdout.strip()
    cluster.run(f"scontrol update nodename={node} state=down reason=test")


WAYS = [kill_one_rank, signal_the_script, node_failure, cancel, requeue]


@pytest.fixture(scope="module")
def uninterrupted(cluster, graph):
    """(job, run directory) of the same run left in peace; it goes on at the same time as the others."""
    command = f"{SIZE} jobs/train.sbatch --graph {graph} --run-dir whole -- {OPTIONS}"
    return cluster.submit(command), cluster.home / "whole"


def test_five_ends_and_no_seam(cluster, graph, uninterrupted):
    """Identical on the same layout, whatever node it ran on; on another number of ranks within 1e-4 of the loss."""
    run_dir = cluster.home / "stopped"
    command = f"{SIZE} jobs/train.sbatch --graph {graph} --run-dir {run_dir} -- {OPTIONS}"
    draw = random.Random(time.time_ns())
    ways = draw.sample(WAYS, len(WAYS))
    # Behind the first checkpoint, and apart, for a stop comes some epochs late.
    points = [25 * i + draw.randrange(8, 15) for i in range(len(ways))]
    print("stopped after", dict(zip(points, (way.__name__ for way in ways))))
    job, restarted = cluster.submit(command), 0
    for point, way in zip(points, ways):
        wait_for_epoch(cluster, job, run_dir, point)
        ended = way(cluster, job, run_dir)
        if ended:
            assert cluster.wait(job)[job] == ended, said(cluster)
            if way is kill_one_rank:
                newest = max((run_dir / "checkpoints").glob("epoch-*.h5")).stem.removeprefix("epoch-")
                assert re.search(
                    f"rank 1 on node n[12] was killed, often for .*: it goes on from epoch {int(newest) + 1}\n",
                    said(cluster),
                )
            job, restarted = cluster.submit(command), 0
        else:
            restarted += 1
            while restarts(cluster, job) < restarted or cluster.state(job) != "RUNNING":
                assert cluster.state(job) not in ("FAILED", "COMPLETED", "CANCELLED"), said(cluster)
                time.sleep(0.1)
        if way is ways[2]:
            shutil.copytree(run_dir, cluster.home / "elsewhere")
    others = (
        command.replace("--ntasks=2", "--ntasks=4").replace("--nodes=1", "--nodes=2").replace(str(run_dir), "elsewhere")
    )
    assert set(cluster.wait(job, uninterrupted[0]).values()) == {"COMPLETED"}, said(cluster)
    more = cluster.submit(others)
    found, expected = learned(run_dir), learned(uninterrupted[1])
    assert found == expected
    results = [summary(path) for path in (run_dir, uninterrupted[1])]
    for key in ("final_loss", "best_val", "best_epoch", "test_at_best_val", "epochs", "parameters"):
        assert results[0][key] == results[1][key]
    assert cluster.wait(more)[more] == "COMPLETED", said(cluster)
    losses = np.array(
        [[record["loss"] for record in curve] for curve in (learned(cluster.home / "elsewhere"), expected)]
    )
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


def restarts(cluster, job):
    text = cluster.run(f"scontrol show job {job}").stdout
    return int(text.split("Restarts=")[1].split()[0])


def test_a_job_that_is_told_to_stop_is_not_requeued(cluster, graph, endless):
    """USR1, which the documentation once named for it, put the job back into the queue at once."""
    command = f"{SIZE} jobs/train.sbatch --graph {graph} --run-dir ended -- {endless}"
    job = cluster.submit(command)
    wait_for_epoch(cluster, job, cluster.home / "ended", 3)
    cluster.run(f"scancel --batch --signal=USR2 {job}")
    assert cluster.wait(job)[job] == "FAILED", said(cluster)
    assert "ExitCode=85:0" in cluster.run(f"scontrol show job {job}").stdout and restarts(cluster, job) == 0
    done = epochs_done(cluster.home / "ended")
    assert (cluster.home / "ended" / "checkpoints" / f"epoch-{done:06d}.h5").exists()
    assert "as it was told to" in said(cluster)


@pytest.mark.parametrize("saved", [True, False], ids=["progress", "none"])
def test_a_chain_goes_on_as_long_as_checkpoints_are_written(tmp_path, saved):
    """Two jobs may leave as many lines of metrics.jsonl: those after the checkpoint are of epochs that are done again.
    Commands of SLURM's name stand in for it.
    """
    run, commands = tmp_path / "run", tmp_path / "bin"
    (run / "checkpoints").mkdir(parents=True)
    commands.mkdir()
    (run / "metrics.jsonl").write_text("{}\n" * 4)
    (run / "checkpoints" / "epoch-000002.h5").touch()
    trained = f"touch {run}/checkpoints/epoch-000004.h5; exit 85" if saved else "exit 85"
    scripts = {
        "srun": f'case "$*" in *" train "*) {trained} ;; esac',
        "scontrol": "case $1 in requeue) echo requeued; kill $PPID ;; esac",
        "sleep": "exit",
    }
    for name, text in scripts.items():
        (commands / name).write_text(f"#!/bin/sh\n{text}\n")
        (commands / name).chmod(0o755)
    (tmp_path / "site.sh").write_text(f'PATH={commands}:$PATH\nSITE_LAUNCHER="srun --mpi=none"\nSITE_SRUN_OPTIONS=\n')
    job = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_JOB_END_TIME": "9",
        "SLURM_JOB_NODELIST": "n1",
        "SLURM_NTASKS": "1",
    }
    options = f"--site {tmp_path}/site.sh --graph {tmp_path}/site.sh --run-dir {run}"
    done = call(f"bash {ROOT}/jobs/train.sbatch {options}", tmp_path, **job)
    assert ("requeued" in done.stdout) == saved and ("too short for one epoch" in done.stderr) != saved, done
