"""Ctrl-C as a user gives it: a run that trains stops in order, as after SIGUSR1; before that, and a second time, it
ends.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
from run_files import epochs_done

from hpcgnn.engine.stopping import EXIT_STOPPED, StopRequest

from ..forked import train
from ..launching import LIMIT_SECONDS, command_and_environment


def answer_signals():
    """A test that runs in the background of a shell would hand down that Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextlib.contextmanager
def begun(ranks, program):
    """The process of a job that is gone when the test is, whatever becomes of it."""
    command, environment = command_and_environment(ranks, *program)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, preexec_fn=answer_signals, **pipes) as process:
        try:
            yield process
        finally:
            process.terminate()  # mpiexec ends its ranks


def wait_for(condition):
    end = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("ranks", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_ctrl_c_stops_with_a_checkpoint(good, tmp_path, ranks):
    """It ended in tracebacks and MPI_Abort, and the epochs since the last checkpoint were lost."""
    options = ["--graph", good, "--hidden", "8", "--eval-every", "0", "--run-dir", tmp_path / "run"]
    options += ["--partition", "dealt"] if ranks else []
    with begun(ranks, ["-m", "hpcgnn", "train", *options, "--epochs", "1000000", "--checkpoint-every", "0"]) as process:
        wait_for(lambda: epochs_done(tmp_path / "run") > 3 or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == EXIT_STOPPED, err
    assert "Traceback" not in err and "Abort" not in err, err
    assert "stopping after this epoch" in err and "(Ctrl-C); a checkpoint is written" in err
    done = epochs_done(tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints" / f"epoch-{done:06d}.h5").exists()
    more = train(ranks, *options, "--epochs", done + 1, "--resume")
    assert more.code == 0 and f"{done} epochs are done" in more.err, more.err


SLOW_START = """
import sys
import hpcgnn.app.bring_up as bring_up
def slow(*arguments, **more):
    print("loading", flush=True)
    import time
    time.sleep(60)
bring_up.load_local_graph = slow
from hpcgnn.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("ranks", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_ctrl_c_before_the_first_epoch_ends_the_job(good, tmp_path, ranks):
    options = ["--graph", good, *(["--partition", "dealt"] if ranks else []), "--run-dir", tmp_path / "run"]
    with begun(ranks, ["-c", SLOW_START, "train", *options]) as process:
        assert process.stdout.readline().startswith("loading")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode not in (0, EXIT_STOPPED)
    assert "Traceback" not in err and err.count("hpcgnn: interrupted") == 1, err
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_second_ctrl_c_ends_at_once(capfd):
    """But not one that the terminal and the launcher both passed on."""
    before, stop = signal.getsignal(signal.SIGINT), StopRequest()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with stop.of_ctrl_c(speaks=True):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.is_due() and stop.reason() == "Ctrl-C"
            time.sleep(0.6)
            with pytest.raises(KeyboardInterrupt, match="--resume"):
                os.kill(os.getpid(), signal.SIGINT)
        assert capfd.readouterr().err.count("press it again") == 1
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_where_ctrl_c_is_ignored_it_stays_so():
    """As in `nohup` or in the background of a script: a signal meant for others must not stop the run."""
    before, stop = signal.signal(signal.SIGINT, signal.SIG_IGN), StopRequest()
    try:
        with stop.of_ctrl_c(speaks=True):
            os.kill(os.getpid(), signal.SIGINT)
        assert not stop.is_due()
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("program", ["hpcgnn", "partition_tools"])
def test_ctrl_c_while_modules_load(program):
    """Python prints the modules that it has imported, so that the moment is known."""
    command = [sys.executable, "-X", "importtime", "-m", program, "--help"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, preexec_fn=answer_signals, **pipes) as process:
        for line in process.stderr:
            if line.rstrip().endswith(" hpcgnn.interruption"):
                break
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        err = process.stderr.read()
    assert process.returncode == 130 and "Traceback" not in err and f"{program}: interrupted\n" in err, err
