"""A sample of mutants of the package against the tests that reach them: see README.md.

A mutant is one small change of one file of a copy. It has survived if no test fails of those whose run executed the
changed lines. Tests without a launcher run in forks of this process, since torch takes seconds to load. This process
has loaded torch and nothing of the package.
"""

import argparse
import ast
import collections
import compileall
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import coverage
import h5py  # noqa: F401
import hypothesis  # noqa: F401
import mpi4py
import pymetis  # noqa: F401
import pytest
import scipy.sparse  # noqa: F401
import torch  # noqa: F401
from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

mpi4py.rc.initialize = mpi4py.rc.finalize = False
ROOT = Path(__file__).resolve().parents[2]
OPERATORS = sorted(
    set(plugins.operator_names()) - {"core/VariableReplacer", "core/VariableInserter"}
)  # which need arguments
# (folder of tests, ranks, seconds of them, as they took when the coverage was taken)
STAGES = (("core", 0, 6), ("mpi", 1, 6), ("mpi", 2, 4))
CONTROLS = 3  # runs without a change, which must pass


def mutants(path):
    """[(first line, last line, kind, source)] of a file: an operator of each family at each place; each statement
    deleted.
    """
    source, found, made = path.read_text(), collections.defaultdict(list), []
    tree, lines = get_ast(source), source.splitlines(keepends=True)
    for name in OPERATORS:
        operator = plugins.get_operator(name)()
        positions = [at for node in ast_nodes(tree) for at in operator.mutation_positions(node)]
        for number, (start, end) in enumerate(positions):
            if not ("BitOr_" in name and "| None" in lines[start[0] - 1]):  # a type such as `Tensor | None` is no code
                found[start, name.split("_")[0]].append((start[0], end[0], name, number))
    for place in sorted(found):
        first, last, name, number = random.choice(found[place])
        made.append((first, last, name, mutate_code(source, plugins.get_operator(name)(), number)))
    for node in ast.walk(ast.parse(source)):
        stored = isinstance(node, ast.Assign) and not isinstance(node.targets[0], (ast.Name, ast.Tuple))
        called = isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
        if stored or called or isinstance(node, (ast.AugAssign, ast.Raise, ast.If)):
            first, indent = node.lineno, lines[node.lineno - 1][: node.col_offset]
            if not indent.strip():  # an elif is no statement of its own
                gone = "".join([*lines[: first - 1], indent + "pass\n", *lines[node.end_lineno :]])
                made.append((first, first if isinstance(node, ast.If) else node.end_lineno, "delete", gone))
    return made


class Reach:
    """Which test functions of a folder executed which lines, and how long they took."""

    def __init__(self, folder):
        self.lines, self.seconds = collections.defaultdict(set), collections.Counter()
        for took, where in re.findall(r"([\d.]+)s \w+ +tests/(\S+?::\w+)", (folder / "durations").read_text()):
            self.seconds[re.sub(r"/|\.py::", ".", where)] += float(took)
        for file in folder.glob("c.*"):
            data = coverage.CoverageData(str(file))
            data.read()
            for path in data.measured_files():
                for line, tests in data.contexts_by_lineno(path).items():
                    self.lines[path.split("/hpcgnn/")[-1], line].update(
                        test for test in tests if test.startswith(f"{folder.name}.")
                    )

    def tests(self, name, first, last, most):
        """pytest's names of tests of the lines that together take at most `most` seconds; where no test ran the lines,
        names of the nearest tests.
        """
        found = set().union(*(self.lines.get((name, line), ()) for line in range(first, last + 1)))
        before = (self.lines.get((name, line)) for line in range(first, max(0, first - 40), -1))
        found = found or next(filter(None, before), set())
        if not found:
            found = set().union(*(tests for (path, _), tests in self.lines.items() if path == name))
        ordered, modules = sorted(found, key=lambda test: (self.seconds[test], test)), collections.Counter()
        total = itertools.accumulate(self.seconds[test] for test in ordered)
        ordered = [test for number, (test, sum) in enumerate(zip(ordered, total)) if sum <= most or number == 0]
        for test in ordered:
            modules[test.rsplit(".", 1)[0]] += self.seconds[test]
        # Module by module, for what the tests of one share is made once.
        ordered.sort(key=lambda test: (modules[test.rsplit(".", 1)[0]], test.rsplit(".", 1)[0]))
        return [_node_id(test.split(".")) for test in ordered]


def _node_id(parts):
    """pytest's name of a test by the parts of its name in a coverage file, such as core.ops.test_sums.test_one."""
    module = next(number for number, part in enumerate(parts) if part.startswith("test_")) + 1
    return f"tests/{'/'.join(parts[:module])}.py::{'::'.join(parts[module:])}"


def run(copy, tests, ranks, limit):
    """'passed', 'failed' or 'timeout' of some tests in the copy."""
    words = ["-x", "-q", "-p", "no:cacheprovider", *tests]
    with open(os.devnull, "w") as nothing:
        if ranks > 1:
            words = ["mpiexec", "-n", str(ranks), sys.executable, "-m", "pytest", *words]
            pid = subprocess.Popen(words, cwd=copy, stdout=nothing, stderr=nothing, start_new_session=True).pid
        elif (pid := os.fork()) == 0:
            os.setsid(), os.chdir(copy), sys.path.insert(0, str(copy))
            os.dup2(nothing.fileno(), 1), os.dup2(nothing.fileno(), 2)
            os._exit(int(pytest.main(words)))
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return "failed" if status else "passed"
        time.sleep(0.02)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "timeout"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reach", type=Path, help="folder with `core` and `mpi`: see README.md")
    parser.add_argument("files", nargs="+", help="files or folders below hpcgnn/")
    parser.add_argument("--count", type=int, default=100, help="mutants of each file or folder that is named")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, nargs="+", default=[0, 1, 2], help="0: the tests without MPI")
    parser.add_argument(
        "--limit", type=float, default=120, help="seconds for the tests of a mutant at each number of ranks"
    )
    parser.add_argument("--out", type=Path, default="mutants.jsonl")
    options = parser.parse_args()
    random.seed(options.seed)
    copy = Path(tempfile.mkdtemp(prefix="mutants-")) / "copy"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "build", "__pycache__", "runs"))
    compileall.compile_dir(copy, quiet=1)
    os.environ.update(PYTHONPATH=f"{copy}:{os.environ.get('PYTHONPATH', '')}", PYTHONDONTWRITEBYTECODE="1")
    os.environ.update(OMP_NUM_THREADS="1", HPCGNN_TEST_LIMIT=str(options.limit / 2))
    sys.dont_write_bytecode = True
    where = subprocess.run(
        [sys.executable, "-c", "import hpcgnn; print(hpcgnn.__file__)"], cwd=copy, capture_output=True
    )
    assert where.stdout.decode().startswith(str(copy)), f"the copy is not what runs: {where}"
    reach, samples = {part: Reach(options.reach / part) for part in ("core", "mpi")}, []
    for named in options.files:
        whole = ROOT / "hpcgnn" / named
        paths = sorted(whole.rglob("*.py")) if whole.is_dir() else [whole]
        pool = [(path, *each) for path in paths for each in mutants(path)]
        samples.append(random.sample(pool, min(options.count, len(pool))))
    chosen = [each for several in itertools.zip_longest(*samples) for each in several if each]
    controls = [(path, a, b, "control", path.read_text()) for path, a, b, *_ in chosen[:CONTROLS]]
    for path, first, last, what, mutated in controls + chosen:
        name, started, outcome, ran = str(path.relative_to(ROOT / "hpcgnn")), time.monotonic(), "no test", []
        (copy / "hpcgnn" / name).write_text(mutated)
        for part, ranks, most in STAGES:
            if ranks not in options.ranks or outcome not in ("no test", "passed"):
                continue
            if tests := reach[part].tests(name, first, last, most):
                outcome = run(copy, tests, ranks, options.limit)
                ran.append([ranks, len(tests), outcome])
        shutil.copy2(path, copy / "hpcgnn" / name)
        well = outcome in ("passed", "no test")
        assert well or what != "control", f"the tests fail without a change: {name}, line {first}: {ran}"
        changed = next(
            (two for two in zip(path.read_text().split("\n"), mutated.split("\n")) if two[0] != two[1]), None
        )
        result = {"file": name, "line": first, "what": what, "outcome": outcome, "ran": ran, "change": changed}
        with options.out.open("a") as file:
            print(json.dumps({**result, "seconds": round(time.monotonic() - started)}), file=file)


if __name__ == "__main__":
    main()
