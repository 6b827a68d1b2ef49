"""Runs the tests: the quick lane, or parts of the slow one. `bash env/test.sh` calls this in its environment.

    python tests/lanes.py [--all | --gate | --part NAME…] [-- pytest options]

Without an option it is the quick lane: every promise once (promises.toml). --all adds the slow lane. The option --gate
adds parts of the slow lane that the commits of the last twelve hours touch. It also adds one of the others by the
number of commits, while there is time. Parts run at the same time, the longest first; a part's output appears when it
ends.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Parts beside each other: two keep two cores busy, others fill the gaps where tests wait.
BESIDE = 4
#: Nothing can hang for longer than this, whatever happens inside (seconds).
LIMIT_SECONDS = 1800
#: The gate starts no further slow part after so many seconds: it is to end within 30 minutes, and a part may take 18.
GATE_SECONDS = 12 * 60
PYTEST = (sys.executable, "-m", "pytest", "-q")
MPIEXEC = str(Path(sys.prefix, "bin", "mpiexec"))


@dataclass(frozen=True)
class Part:
    """A command, and the paths whose change asks for it in the gate (of slow parts)."""

    name: str
    command: tuple[str, ...]
    touched: tuple[str, ...] = ()
    quick: bool = False


def quick(name, *command):
    return Part(name, command, quick=True)


def of_ranks(ranks, transport, *options):
    return (MPIEXEC, "-n", str(ranks), *PYTEST, "--transport", transport, *options)


def tests_of(*names):
    """Files of tests/mpi by their names; each name has a file."""
    found = {name: sorted(ROOT.glob(f"tests/mpi/*/test_{name}.py")) for name in names}
    assert all(found.values()), f"no such files of tests: {[name for name in names if not found[name]]}"
    return [str(path.relative_to(ROOT)) for paths in found.values() for path in paths]


STYLE = """
ruff check --quiet . && ruff format --quiet --diff . && codespell &&
shellcheck --severity=warning .ci/run env/*.sh jobs/*.sh jobs/*.sbatch jobs/*/*.sh
"""
ROOMS, EXTRAS = (
    sorted({str(path.parent.relative_to(ROOT)) for path in ROOT.glob(f"tests/{folder}/*/test_*.py")})
    for folder in ("mpi", "extras")
)
#: Files of tests that run as processes.
PROCESSES = sorted(
    str(path.relative_to(ROOT))
    for path in ROOT.glob("tests/mpi/*/test_*.py")
    if re.search(r"mark\.(processes|smoke)\b", path.read_text(encoding="utf-8"))
)
GLOO = tests_of("stream", "operators", "curves", "resume", "tma")
OF_ONECCL = tests_of("communicator", "stream", "curves")
ALL_TO_ALL = tests_of("communicator", "stream", "numbers")
OF_ALL_RANKS = ("-p", "tests.extras.oneccl.transports")
#: Paths whose change asks for a slow part.
COMM = ("hpcgnn/comm/", "hpcgnn/exchange/")
ONECCL = (*COMM, "hpcgnn/extras/oneccl/")
KERNELS = ("hpcgnn/kernels/",)

#: The longest first.
PARTS = (
    quick("jobs", *PYTEST, "tests/jobs"),
    quick("ranks, first rooms", *PYTEST, *ROOMS[: len(ROOMS) // 2]),
    quick("ranks, other rooms", *PYTEST, *ROOMS[len(ROOMS) // 2 :]),
    quick("extras, first rooms", *PYTEST, *EXTRAS[:5]),
    quick("extras, other rooms", *PYTEST, *EXTRAS[5:]),
    quick("core", *PYTEST, "tests/core"),
    quick("tools", *PYTEST, "tests/partition_tools"),
    quick("types", "mypy", "--no-error-summary", "hpcgnn", "partition_tools"),
    quick("faults", *PYTEST, "tests/faults"),
    quick("kernels", *PYTEST, "tests/kernels"),
    quick("pages", *PYTEST, "tests/test_promises.py", "tests/docs", "tests/report", "tests/install"),
    quick("2 processes", *of_ranks(2, "polite", *PROCESSES, "-m", "(processes or smoke) and not slow")),
    quick("3 processes", *of_ranks(3, "polite", *PROCESSES, "-m", "(processes or smoke) and not slow")),
    quick("style", "bash", "-c", STYLE),
    Part("sanitizers", (*PYTEST, "tests/kernels/test_sanitized.py", "-m", "slow"), KERNELS),
    Part("aarch64", (*PYTEST, "tests/kernels/test_aarch64.py", "-m", "slow"), KERNELS),
    Part("kernels, all cases", (*PYTEST, "tests/kernels", "--all", "-m", "not slow"), KERNELS),
    *(
        Part(f"all cases, {room}", (*PYTEST, room, "--all"), (f"{room}/", f"hpcgnn/{Path(room).name}/"))
        for room in ROOMS
    ),
    Part("all cases, estimates", (*PYTEST, "tests/extras/estimate", "--all"), ("hpcgnn/extras/estimate/",)),
    Part("Open MPI", ("bash", "env/test-mpi.sh", "openmpi", "--ranks", "2", "--", "-m", "processes or smoke"), COMM),
    Part("gloo", of_ranks(2, "gloo", *GLOO), COMM),
    Part("all-to-all", of_ranks(3, "all-to-all", *OF_ALL_RANKS, *ALL_TO_ALL), ONECCL),
    Part("oneCCL", of_ranks(3, "oneccl", *OF_ALL_RANKS, *OF_ONECCL, "-m", "smoke or processes"), ONECCL),
    Part(
        "without extras",
        (sys.executable, "tests/without_extras.py", "tests/core", "tests/mpi", "-m", "not slow"),
        ("hpcgnn/extras/", "hpcgnn/registry.py", "hpcgnn/plan/", "hpcgnn/options/"),
    ),
    Part("slow of extras", (*PYTEST, "tests/extras", "-m", "slow"), ("hpcgnn/", "tests/extras/")),
    Part("slow of processes", of_ranks(2, "polite", *PROCESSES, "-m", "slow and (processes or smoke)"), ("hpcgnn/",)),
    Part(
        "slow of jobs", (*PYTEST, "tests/jobs", "tests/core", "tests/faults", "-m", "slow"), ("jobs/", "hpcgnn/comm/")
    ),
    Part("oldest versions", ("bash", "env/versions.sh", "oldest")),
    Part("newest versions", ("bash", "env/versions.sh", "newest")),
    Part(
        "packages",
        (*PYTEST, "tests/install", "tests/docs", "tests/report", "-m", "slow"),
        ("setup.py", "setup.cfg", "env/", "docs/", "hpcgnn/report/"),
    ),
)


def chosen(arguments):
    """The parts to run, and the names of slow parts that are by turns."""
    if arguments.part:
        unknown = set(arguments.part) - {part.name for part in PARTS}
        if unknown:
            sys.exit(f"unknown parts {sorted(unknown)}; expected of {[part.name for part in PARTS]}")
        return [part for part in PARTS if part.name in arguments.part]
    parts = [part for part in PARTS if part.quick or arguments.all]
    if arguments.gate:
        slow = [part for part in PARTS if not part.quick]
        changed = _changed()
        touched = [part for part in slow if any(path.startswith(part.touched) for path in changed)]
        turn = int(_git("rev-list", "--count", "HEAD") or 0) % len(slow)
        by_turns = [*slow[turn:], *slow[:turn]]
        others = [part for part in by_turns if part not in touched]
        parts += [*others[:1], *(part for part in by_turns if part in touched)]
    return parts


def _changed():
    """The paths that the commits of the twelve hours up to the newest one touch."""
    newest = _git("log", "-1", "--format=%ct")
    if not newest:
        return []
    return _git("log", f"--since={int(newest) - 12 * 3600}", "--format=", "--name-only").split("\n")


def _git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()


class Runner:
    """Runs parts at the same time and shows their output one after the other."""

    def __init__(self, options, gate):
        self._options, self._gate = options, gate
        self._lock, self._begun = threading.Lock(), time.monotonic()
        self.failed, self.left = [], []
        self.running = set()

    def run(self, parts):
        pool = ThreadPoolExecutor(BESIDE)
        try:
            list(pool.map(self._one, parts))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in self.running:
                os.killpg(process.pid, 15)

    def _one(self, part):
        if self._gate and not part.quick and time.monotonic() - self._begun > GATE_SECONDS:
            self.left.append(part.name)
            return
        pytest_options = self._options if "pytest" in part.command else []
        begin = time.monotonic()
        # A file, and no pipe: what a test leaves running may hold it open.
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [*part.command, *_unmarked(part), *pytest_options],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | ({"HPCGNN_TEST_BUDGET": "1"} if part.quick and not self._options else {}),
            )
            self.running.add(process)
            try:
                code = process.wait(LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                code = 124
            self.running.discard(process)
            output.seek(0)
            text = output.read().decode(errors="replace")
        with self._lock:
            print(f"== {part.name} (from {_clock(begin - self._begun)}, {time.monotonic() - begin:.0f} s)", flush=True)
            print(text.rstrip(), flush=True)
            if code not in (0, 5):  # 5: no test of the part is for this lane
                self.failed.append(part.name)
                print(f"== {part.name} FAILED with exit code {code}", flush=True)


def _unmarked(part):
    """The options that leave tests of the slow lane out of the quick one."""
    return ("-m", "not slow") if part.quick and "pytest" in part.command and part.command.count("-m") == 1 else ()


def _clock(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="the slow lane as well")
    parser.add_argument("--gate", action="store_true", help="slow parts that a change touches, and one by turns")
    parser.add_argument("--part", action="append", metavar="NAME", help="this part alone; may be repeated")
    parser.add_argument("options", nargs="*", help="options of pytest, behind --")
    arguments = parser.parse_args()
    runner = Runner(arguments.options, arguments.gate)
    with tempfile.TemporaryDirectory() as folder:
        # Graphs that several parts train on are made once.
        os.environ["HPCGNN_TEST_GRAPHS"] = folder
        runner.run(chosen(arguments))
    used = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"== {_clock(time.monotonic() - runner._begun)} minutes, {used:.0f} s of processor time", flush=True)
    if runner.left:
        print(f"== no time for: {', '.join(runner.left)}")
    if runner.failed:
        sys.exit(f"== FAILED: {', '.join(runner.failed)}")
    print("== all tests passed")


if __name__ == "__main__":
    main()
