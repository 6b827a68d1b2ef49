"""How a run is carried out: where it writes, its threads, transport and precision, and what it tells meanwhile."""

from dataclasses import dataclass

from hpcgnn.declaring import YEAR, Named, option


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    run_dir: str = option("", "directory for everything the run leaves behind (default: runs/MODEL-RANKSr-DATE)")
    resume: bool = option(
        False,
        "continue from the last checkpoint in --run-dir, with the options in its config.toml unless others are "
        "given; start afresh if there is no run yet",
        needs={"run_dir": Named()},
        strict=True,
    )
    seed: int = option(0, "seed of all randomness: initial parameters and dropout", least=-(2**63), most=2**63 - 1)
    threads: int = option(
        0,
        "threads per rank (0: SLURM_CPUS_PER_TASK, OMP_NUM_THREADS, or the rank's cores divided by the ranks that "
        "share them; hardware threads of a core count once)",
        least=0,
        most=4096,
    )
    spare_core: bool = option(
        False,
        "let one thread fewer compute on a rank that has at least 4 cores for itself, and leave its core to the helper "
        "threads that advance messages and watch the job",
        needs={"threads": (0,)},
    )
    precision: str = option(
        "fp32",
        "precision of features, parameters and arithmetic; mixed (gcn, sage with --aggregator mean): fp32, but what "
        "hidden layers hand on and exchange is kept in bf16, in half the memory and half the bytes; products and "
        "aggregates are of fp32, and so are norms, of which copies are kept",
        choices=("fp32", "fp64", "mixed"),
    )
    memory: str = option(
        "auto",
        "memory that the ranks of a node may take together, such as 48G: what training keeps from the forward for the "
        "backward pass, and features, go to a scratch file where they do not fit, and the results stay the same. auto: "
        "what the machine, or the job's share of it, leaves; none: no limit",
    )
    scratch: str = option(
        "",
        "directory on a local disk of every node for what --memory does not hold (default: $TMPDIR, or /tmp)",
    )
    matmul: str = option(
        "highest",
        "how fp32 matrices are multiplied: highest, as they are; medium, with factors rounded to bf16 and sums in "
        "fp32, which is faster where the processor has bf16 instructions (`hpcgnn doctor` says) and changes nothing "
        "where it has not",
        choices=("highest", "medium"),
    )
    comm: str = option(
        "mpi",
        "what carries messages between ranks: mpi, the MPI library that mpi4py finds; torch, torch.distributed, which "
        "needs none (mpiexec, srun or torchrun start the ranks all the same); oneccl, Intel's oneCCL beside MPI, after "
        "`bash env/build-oneccl.sh`",
        choices=("mpi", "torch", "oneccl"),
    )
    torch_backend: str = option(
        "gloo",
        "backend of --comm torch: gloo, over TCP; mpi, of a torch built with it; ccl, of oneccl_bindings_for_pytorch; "
        "nccl and xccl, through a GPU for each rank",
        choices=("gloo", "mpi", "ccl", "nccl", "xccl"),
        needs={"comm": ("torch",)},
        strict=True,
    )
    metric: str = option(
        "auto",
        "metric of train, val and test, by which the best epoch is chosen: accuracy for classification; micro-f1 or "
        "roc-auc for multilabel; rmse, mae (both: the lower the better) or r2 for regression; mrr or hits@1, @3, @10, "
        "@20, @50 or @100 for links; auto is the first, and hits@50 for links with negatives for all edges",
        choices=(
            *("auto", "accuracy", "micro-f1", "roc-auc", "rmse", "mae", "r2"),
            *("mrr", "hits@1", "hits@3", "hits@10", "hits@20", "hits@50", "hits@100"),
        ),
        on_resume="same",
    )
    eval_every: int = option(1, "evaluate every so many epochs, and after the last; 0 never evaluates", least=0)
    checkpoint_every: int = option(
        50, "write a checkpoint every so many epochs, and after the last; 0 only after the last", least=0
    )
    profile_memory: bool = option(
        False,
        "record the high-water mark of memory of every phase on every rank, and an account of it; costs about half "
        "a millisecond per epoch",
    )
    trace: str = option(
        "",
        "record what every rank does, and when, in a few epochs: phases, turns of the halo, kernels, waits, "
        "reductions; for https://ui.perfetto.dev, in trace/ of the run directory, and drawn by `hpcgnn report`. A "
        "number of epochs after the first, or the epochs themselves as in 3-4 or 7-7; without a value 2-4",
        bare="2-4",
    )
    stop_before: float = option(
        0.0,
        "stop with a checkpoint and exit code 85 when the batch job has fewer seconds left than this, as SIGUSR1 makes "
        "it do at any time; 0 never (the job's end is read from SLURM_JOB_END_TIME)",
        least=0.0,
        most=YEAR,
    )
    watchdog: float = option(
        300.0,
        "end the job, naming the ranks that did not arrive, when ranks wait and none has got on for so many "
        "seconds; 0 never",
        least=0.0,
        most=YEAR,
    )
    tensorboard: bool = option(
        False,
        "write loss, metrics, seconds and bytes of every epoch for TensorBoard, into tensorboard/ of the run directory",
    )
    watch: str = option(
        "", "Python file whose function epoch(record) rank 0 calls after every epoch, to pass its record on elsewhere"
    )
    log_every: int = option(
        0,
        "epochs between lines of the log when the output is not a terminal; 0: a line after the first epoch, then "
        "at growing intervals of 10 seconds to 5 minutes",
        least=0,
    )
