"""Shared parts of all tests: the policies of the program itself, and the folder that `oracle` and `graphs` are imported
from.
"""

import gc
import os
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

# Set before torch is loaded, as the program does it: the allocator's policy, and idle threads that sleep instead of
# spinning.
os.environ.setdefault("OMP_NUM_THREADS", "1")
from hpcgnn.__main__ import main, set_process_policies  # noqa: E402

set_process_policies()

import torch  # noqa: E402
from torch.testing import _comparison  # noqa: E402

# No tensor here is a DTensor. To find that out, the first comparison of each process would load SymPy and torch's
# compiler.
_comparison._HAS_DTENSOR = False

# Nothing here is compiled. To tell torch's compiler so, the first optimizer of each process would load it.
for name in ("add_param_group", "load_state_dict", "state_dict", "zero_grad"):
    setattr(torch.optim.Optimizer, name, getattr(torch.optim.Optimizer, name).__wrapped__)
for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD):
    kind.step = torch.no_grad()(kind.step.__wrapped__)
_make_grads = torch.autograd._make_grads


def _given_gradients(outputs, gradients, is_grads_batched):
    """Gradients of the shapes of the outputs, as they are: to compare shapes torch would load SymPy and more."""
    plain = all(isinstance(each, torch.Tensor) for each in (*outputs, *gradients)) and not is_grads_batched
    if plain and [each.shape for each in outputs] == [each.shape for each in gradients]:
        return tuple(gradients)
    return _make_grads(outputs, gradients, is_grads_batched=is_grads_batched)


torch.autograd._make_grads = _given_gradients

# Appended, not inserted: folders here are named after the packages they test and must not hide them.
HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.append(HERE)
import cover  # noqa: E402


def pytest_addoption(parser):
    launched = any(name in os.environ for name in ("PMI_SIZE", "PMI_RANK", "OMPI_COMM_WORLD_SIZE"))
    parser.addoption("--all", action="store_true", help="all cases at all numbers of ranks")
    parser.addoption(
        "--transport",
        default="polite" if launched else "threads",
        help="threads of this process as ranks, or a transport of tests/mpi/transports.py between those of mpiexec",
    )


#: Folders of the tests, whose items and processor time have ceilings (budget.toml).
ROOMS, SECONDS = pytest.StashKey(), pytest.StashKey()
#: {name of a test: whether each of its cases is slow}
SLOW = pytest.StashKey()


def pytest_configure(config):
    config.stash[ROOMS], config.stash[SECONDS], config.stash[SLOW] = {}, {}, {}


def pytest_itemcollected(item):
    slow = item.get_closest_marker("slow") is not None
    item.config.stash[SLOW].setdefault(cover.test_of(item), []).append(slow)


def _room(path):
    """The folder of tests/ that a test is in; for tests of ranks and of extras, the folder below."""
    parts = Path(path).relative_to(HERE).parts
    return "/".join(parts[: 2 if parts[0] in ("mpi", "extras") else 1])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Count a test and its processor time, with the time of the processes that it waits for."""
    begin = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        room = _room(item.path)
        rooms, seconds = item.config.stash[ROOMS], item.config.stash[SECONDS]
        rooms[room] = rooms.get(room, 0) + 1
        seconds[room] = seconds.get(room, 0.0) + sum(os.times()[:4]) - begin


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """The quick lane (tests/lanes.py) holds the budget: who adds must fit, or remove."""
    if os.environ.get("HPCGNN_TEST_BUDGET") and session.exitstatus == pytest.ExitCode.OK and _over(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _over(config):
    budget = tomllib.loads(Path(HERE, "budget.toml").read_text())
    found = []
    for room, items in config.stash[ROOMS].items():
        ceiling, seconds = budget.get(room, {}), config.stash[SECONDS][room]
        if items > ceiling.get("items", 0) or seconds > ceiling.get("seconds", 0):
            found.append(f"tests/{room}: {items} items in {seconds:.0f} s; tests/budget.toml allows {ceiling}")
    return found


def pytest_terminal_summary(terminalreporter, config):
    for room, items in config.stash[ROOMS].items():
        line = f"tests/{room}: {items} items, {config.stash[SECONDS][room]:.1f} s of processor time"
        terminalreporter.write_line(line)
    for line in _over(config) if os.environ.get("HPCGNN_TEST_BUDGET") else ():
        terminalreporter.write_line(f"BUDGET: {line}", red=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Without --all the cases of a test cover all values of its parameters, of a test that proves a promise all pairs.
    Tests of ranks are chosen in tests/mpi, since the number of ranks is a parameter of theirs.
    """
    if config.getoption("--all"):
        return
    tests = {}
    for item in items:
        if "comm" not in getattr(item, "fixturenames", ()):
            tests.setdefault(cover.group(item), {})[item.nodeid] = item
    left = set()
    for of_test in tests.values():
        strength = cover.strength(next(iter(of_test.values())))
        chosen = cover.cover({case: cover.axes(item) for case, item in of_test.items()}, strength)
        left.update(item for case, item in of_test.items() if case not in chosen)
    config.hook.pytest_deselected(items=list(left))
    items[:] = [item for item in items if item not in left]


def pytest_collection_finish(session):
    """The quick lane runs a case of each test that proves a promise. Modules stay: the collections of garbage that each
    training makes need not go through all of torch.
    """
    lacking = cover.only_slow(session.config.stash[SLOW]) if os.environ.get("HPCGNN_TEST_BUDGET") else []
    if lacking:
        raise pytest.UsageError(f"all cases are slow of tests that prove a promise: {', '.join(lacking)}")
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """Nor need they go through the objects left after the last test of a file: mostly pytest's data for its report."""
    result = yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return result


@pytest.fixture(scope="session", autouse=True)
def metis_stays():
    """A command ends METIS's process. Here the next one takes it, since a start takes longer than a small graph."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("partition_tools.partitioners.clustering.end_metis", lambda: None)
        yield


@pytest.fixture
def command(capsys, monkeypatch):
    """command(words …, cwd=None) runs `hpcgnn` on one rank, in this process and without MPI; its Result."""
    from core.launching import Result

    from hpcgnn.comm.communicator import SoloCommunicator

    here = {"threads": 1, "ranks_on_node": 1, "node": 0, "crowding": 1.0}
    monkeypatch.setattr("hpcgnn.engine.summary.draw_curves", lambda run_dir: None)  # takes longer than training
    session = SimpleNamespace(comm=SoloCommunicator(), show_heartbeats=lambda folder: None, **here)
    monkeypatch.setattr("hpcgnn.comm.run.run", lambda work, threads, **more: work(session))

    def run(*words, cwd=None):
        capsys.readouterr()
        with monkeypatch.context() as patch:
            if cwd is not None:
                patch.chdir(cwd)
            code = main([str(word) for word in words])
        return Result(code, *capsys.readouterr(), 0.0)

    return run
