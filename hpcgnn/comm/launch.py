"""Start and end of a parallel job: the one place where MPI is started, finished and aborted.

An MPI job in which one rank leaves and the others wait is the most expensive bug a user can meet: it burns node-hours
until the wall-time limit. So every way out of `run` either is taken by all ranks together or ends the whole job:
* a mistake of the user that all ranks know of (`Communicator.together`): one line from rank 0, orderly end, code 2;
* anything else, on any rank, `SystemExit` included: rank, traceback, `MPI_Abort` (`ending.py`);
* Ctrl-C: one line, code 130 (while it trains a run stops in order instead: train/stopping.py);
* a rank that stops, dies or never comes: the watchdog (`watchdog.py`) ends the job;
* a code that all ranks return (a run that stopped before its time was up): rank 0 alone hands it on, and leaves last,
  because launchers kill whoever is still there when the first process leaves with a code other than 0.
This is also the only module that reads the variables of launchers (SLURM_*, OMPI_*, PMI_*).
"""

import contextlib
import faulthandler
import os
import sys
import time
import traceback

from hpcgnn.comm.ending import abort, end_job, meet, say
from hpcgnn.comm.pulse import Board, Pulse
from hpcgnn.comm.watchdog import Watchdog
from hpcgnn.errors import ConfigError, HpcgnnError
from hpcgnn.memory.resident import resident_bytes

EXIT_FAULT, EXIT_USER_ERROR, EXIT_INTERRUPTED = 1, 2, 130
_SECONDS_TO_LEAVE = 1.0
WATCHDOG_SECONDS = 300.0
# What MPICH reads its network module from.
_NETWORK_VARIABLES = ("MPIR_CVAR_CH4_NETMOD", "MPICH_CH4_NETMOD", "MPIR_PARAM_CH4_NETMOD")
_SIZE_VARIABLES = ("SLURM_STEP_NUM_TASKS", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
# SLURM's comes last: under mpiexec inside a job every rank inherits that of the batch script.
_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")


def expected_ranks():
    """(variable, number of ranks) that the launcher says it started, or (None, 1)."""
    for variable in _SIZE_VARIABLES:
        if os.environ.get(variable, "").isdigit():
            return variable, int(os.environ[variable])
    return None, 1


def launched_rank():
    """The rank that the launcher gave this process, before MPI is started; 0 if there was no launcher."""
    return next((int(os.environ[name]) for name in _RANK_VARIABLES if os.environ.get(name, "").isdigit()), 0)


def job_end_time():
    """When the batch system will end this job, in seconds since 1970, or None where it does not say."""
    text = os.environ.get("SLURM_JOB_END_TIME", "")
    return int(text) if text.isdigit() else None


def threads_per_rank(cores, sharers):
    """Threads for a rank: SLURM_CPUS_PER_TASK, else OMP_NUM_THREADS, else its cores divided by the ranks that share
    them.
    """
    for variable in ("SLURM_CPUS_PER_TASK", "OMP_NUM_THREADS"):
        if os.environ.get(variable, "").isdigit() and int(os.environ[variable]) > 0:
            return int(os.environ[variable])
    return max(1, cores // sharers)


def choose_network(MPI):
    """Have MPICH use libfabric (OFI) in place of UCX under `srun --mpi=pmi2`, where the library has both and the user
    chose none. To be called before MPI is started.

    MPICH tells the other nodes a rank's UCX address in a card of 4096 bytes, the rest of it whatever lay in memory, in
    pieces whose lengths depend on those bytes. SLURM (22.05) loses a piece of more than 1024 bytes: by chance, a start
    then fails or hangs ("mpi/pmi2: value not properly terminated in client request"). OFI's address has some 16 bytes.
    A library with UCX alone is left as it is, and so are ranks that mpiexec has started, which reads requests to their
    end.
    """
    device = next((line for line in MPI.Get_library_version().splitlines() if line.startswith("MPICH Device")), "")
    by_srun = {"PMI_FD", "SLURM_STEP_ID"} <= os.environ.keys() and "HYDI_CONTROL_FD" not in os.environ
    if by_srun and "ucx" in device and "ofi" in device and not any(name in os.environ for name in _NETWORK_VARIABLES):
        os.environ["MPIR_CVAR_CH4_NETMOD"] = "ofi"


def load_mpi():
    """mpi4py's MPI, not started yet, and told which network to use. Raises ImportError or RuntimeError: there is no
    library.
    """
    import mpi4py

    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    from mpi4py import MPI

    choose_network(MPI)
    return MPI


class Session:
    """A started MPI. comm: the communicator; threads: per rank; ranks_on_node; shares_cores: more threads than cores;
    mpi_bytes: resident memory that loading and starting the MPI library took.
    """

    def __init__(self, threads=None, watchdog=WATCHDOG_SECONDS):
        without_mpi = resident_bytes()
        try:
            MPI = load_mpi()
        except (ImportError, RuntimeError) as error:
            raise ConfigError(
                f"no MPI library can be loaded ({' '.join(str(error).split())}); expected one inside the environment "
                "(pip install 'hpcgnn[mpi]'), on the system (load the site's module), or named by "
                "MPI4PY_LIBMPI=/path/to/libmpi.so"
            ) from error

        from hpcgnn.comm.mpi import MpiCommunicator

        self._limit = watchdog
        with self._timed():
            self.level = MPI.Init_thread(MPI.THREAD_MULTIPLE)
            meet(MPI.COMM_WORLD)
        self.mpi_bytes = resident_bytes() - without_mpi
        world = MPI.COMM_WORLD
        variable, expected = expected_ranks()
        if world.size == 1 and expected > 1:
            raise ConfigError(
                f"the launcher started {expected} ranks ({variable}={expected}) but each believes to be rank 0 of 1: "
                "launcher and MPI library do not match. Expected the launcher that belongs to "
                f"{MPI.Get_library_version().split(chr(10))[0]}: {os.path.join(sys.prefix, 'bin', 'mpiexec')} if it "
                "exists, or srun with the right --mpi= (srun --mpi=list)"
            )
        if self.level < MPI.THREAD_MULTIPLE:
            raise ConfigError(
                "the MPI library was built without MPI_THREAD_MULTIPLE, which the helper thread that advances "
                "messages needs; load another MPI (see `hpcgnn doctor`)"
            )
        node = world.Split_type(MPI.COMM_TYPE_SHARED)
        self.ranks_on_node = node.size
        mine = os.sched_getaffinity(0)
        # Ranks bound to cores of their own share them with nobody; all others share what they may both run on.
        sharers = sum(not mine.isdisjoint(theirs) for theirs in node.allgather(mine))
        self.watchdog = None
        if world.size > 1:
            board = Board.of_node(node, world.size)
            self.watchdog = Watchdog(world.rank, world.size, Pulse(), watchdog, board, node.size < world.size)
            self.watchdog.start()
        node.Free()
        self.threads = threads or threads_per_rank(len(mine), sharers)
        crowding = self.threads * sharers / len(mine)
        self.shares_cores = crowding > 1
        self.comm = MpiCommunicator(world, crowding, self.watchdog)

    @contextlib.contextmanager
    def _timed(self):
        """Start and end of MPI keep the interpreter's lock, so that no watchdog can run: a timer in C shows where we
        wait, and ends this process."""
        if self._limit:
            faulthandler.dump_traceback_later(self._limit, exit=True)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    def finish(self):
        """End MPI in order. Collective."""
        from mpi4py import MPI

        self.comm.close()
        with self._timed():
            MPI.Finalize()
        if self.watchdog is not None:
            self.watchdog.finish()


def _leave(code, rank):
    """Return the code of a job that ended in order, if it is not 0 then on rank 0 alone, after the others have left."""
    if code == 0 or rank != 0:
        return 0
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(_SECONDS_TO_LEAVE)
    return code


def fail_before_start():
    """End the whole job because this rank failed before MPI was started: it is started for that, or the others would
    wait in their own start for this rank. Returns if this process is alone. To be called where the exception is
    handled.
    """
    if expected_ranks()[1] == 1:
        return
    failure = _in_a_line(sys.exception()), traceback.format_exc()
    faulthandler.dump_traceback_later(WATCHDOG_SECONDS, exit=True)  # the others may have left, and MPI wait for them
    try:
        MPI = load_mpi()
        if MPI.Is_initialized():  # the others are past the first collective call
            raise RuntimeError("failed after MPI was started")
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
        meet(MPI.COMM_WORLD, failure)
    except BaseException:
        say(f"hpcgnn: rank {launched_rank()} failed before MPI was started, and ends the job:\n{failure[1]}")
        raise
    finally:  # where even that fails the others see to it themselves: their start has a limit
        abort(EXIT_FAULT)


def _in_a_line(error):
    """What happened, as the last line of a traceback has it, for one rank to compare with another."""
    return traceback.format_exception_only(error)[-1].strip()


def run(function, threads=None, without_mpi=None, watchdog=WATCHDOG_SECONDS):
    """Call `function(session)` on every rank inside a started MPI and return the exit code. Collective.

    function returns an exit code or None, the same on all ranks. watchdog: seconds after which a job that stands still
    is ended; 0 never. without_mpi(error) -> exit code is called instead where MPI cannot be used, for those who can say
    more about it.
    """
    session = None
    try:
        session = Session(threads, watchdog)
        code = function(session) or 0
        rank = session.comm.rank
        session.finish()
        return _leave(code, rank)
    except HpcgnnError as error:
        if session is None and without_mpi is not None:
            return without_mpi(error)
        rank, size = (session.comm.rank, session.comm.size) if session else (0, 1)
        if getattr(error, "everywhere", False) or (session and size == 1):
            if rank == 0:
                say(f"hpcgnn: error: {error}")
            try:
                session.finish()
            except BaseException:
                abort(EXIT_FAULT)
            return _leave(EXIT_USER_ERROR, rank)
        said = str(error)
        _end(session, error, lambda others: f"hpcgnn: error on rank {rank} of {size}{others}: {said}", EXIT_USER_ERROR)
    except KeyboardInterrupt as error:
        why = str(error) or "interrupted"
        if session is None:  # Ctrl-C reaches all ranks, and none of them can ask the others
            if launched_rank() == 0:
                say(f"hpcgnn: {why}")
            return EXIT_INTERRUPTED
        if session.comm.size == 1:
            say(f"hpcgnn: {why}")
            session.finish()
            return EXIT_INTERRUPTED
        _end(session, error, lambda others: f"hpcgnn: {why}", EXIT_INTERRUPTED)
    except BaseException as error:
        rank, size = (session.comm.rank, session.comm.size) if session else (0, 1)
        code = (
            error.code if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code else EXIT_FAULT
        )
        trace = traceback.format_exc()
        _end(
            session,
            error,
            lambda others: f"hpcgnn: rank {rank} of {size} failed and ends the job{others}:\n{trace}",
            code,
        )


def _end(session, error, text, code):
    """`end_job` for the rank and the watchdog of a session, or of a process that has none."""
    rank, watchdog = (session.comm.rank, session.watchdog) if session else (0, None)
    end_job(rank, watchdog, _in_a_line(error), text, code)
