"""Options of the execution: output directory, threads, transport, precision, and progress messages."""

from dataclasses import dataclass

from hpcgnn.option_fields import YEAR, option


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    run_dir: str = option("", "directory of all results (default: runs/MODEL-RANKSr-DATE)", flag=True)
    resume: bool = option(
        False,
        "continue the run in --run-dir, or begin it",
        details="The run's config.toml has the options, unless others are given.",
        flag=True,
    )
    seed: int = option(
        0, "seed of initial parameters, dropout and all draws", flag=True, least=-(2**63), most=2**63 - 1
    )
    threads: int = option(
        0,
        "threads of each rank; 0: from SLURM, OMP_NUM_THREADS, or the cores",
        flag=True,
        least=0,
        most=4096,
    )
    precision: str = option(
        "fp32",
        "precision of parameters and arithmetic (docs/less-memory.md)",
        details="mixed (gcn, sage): hidden states are stored and sent in bf16.",
        flag=True,
        choices=("fp32", "fp64", "mixed"),
    )
    comm: str = option(
        "mpi",
        "transport of messages (docs/cluster.md)",
        details="torch: gloo of torch.distributed, without an MPI library. oneccl, ccl: Intel's oneCCL.",
        flag=True,
        choices="transports",
    )
    metric: str = option(
        "auto",
        "metric of the splits and of the best epoch",
        details="auto: the first of each task (docs/models.md).",
        choices="metrics",
        on_resume="same",
    )
    eval_every: int = option(1, "epochs between evaluations, the last included; 0: never", least=0)
    checkpoint_every: int = option(50, "epochs between checkpoints; 0: only after the last", least=0)
    profile_memory: bool = option(
        False,
        "record the memory peaks of every phase on every rank",
        details="The record has an account of tensors.",
    )
    stop_before: float = option(
        0.0,
        "seconds before the job's end for a checkpoint and exit; 0: never",
        details="The exit code is 85, also after SIGUSR1. SLURM_JOB_END_TIME has the job's end.",
        least=0.0,
        most=YEAR,
    )
    watchdog: float = option(
        300.0,
        "seconds without progress until the job ends; 0: never",
        details="The message names the ranks that did not arrive.",
        least=0.0,
        most=YEAR,
    )
