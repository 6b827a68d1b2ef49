"""The commonest mistakes of newcomers: one line has their own names, and a remedy that works where it is pasted."""

import contextlib
import random
import re
import signal
import subprocess

import pytest

from hpcgnn.engine.rundir import RunDir
from hpcgnn.engine.stopping import EXIT_STOPPED
from partition_tools.cli import import_graph
from partition_tools.cli.main import main as tools

COLOURS = ("red", "blue", "green", "gold", "grey")
NAMES = [f"{animal}-{colour}" for animal in "ant bee cat dog eel fox gnu hen".split() for colour in COLOURS]
MAKE = "python -m partition_tools import edges.csv --features features.csv --labels labels.csv --undirected"
IMPORT, SPLIT, OUT = "python -m partition_tools import", "--train 0.6 --val 0.2", "-o g.h5 --force"
TRAIN = "hpcgnn train --hidden 8 --epochs 2 --dry-run 1"
RUN = "hpcgnn train --graph graph.h5 --model sage --hidden 8 --epochs 2 --run-dir runs/first"
TABLES = "edges.csv --features features.csv"

#: {part of a first hour: [(the mistake, words of its line, the part of the line to paste or its first group, commands
#: that succeed with it in place of {})]}
MISTAKES = {
    "commands of partition_tools": [
        (f"{IMPORT} edge.csv {OUT}", "edge.csv", "edges.csv", f"{IMPORT} {{}} {OUT}"),
        (
            f"{IMPORT} data/edges.csv {OUT}",
            "data/edges.csv",
            "no directory (data)",
            f"mkdir {{}} && cp edges.csv data && {IMPORT} data/edges.csv {OUT}",
        ),
        (
            f"{IMPORT} edges.csv --features feature.csv {OUT}",
            "feature.csv",
            "features.csv",
            f"{IMPORT} edges.csv --features {{}} {OUT}",
        ),
        (
            f"{IMPORT} edges.csv --label labels.csv {OUT}",
            "--label ",
            "--labels",
            f"{IMPORT} edges.csv {{}} labels.csv {OUT}",
        ),
        (
            f"{IMPORT} edges.csv --set edge.undirected=true {OUT}",
            "edge.undirected=true",
            "edges.undirected=true",
            f"{IMPORT} edges.csv --set {{}} {OUT}",
        ),
        (f"{IMPORT} edges.csv", "-o/--output", "`(.* --help)`", "{}"),
        (
            "python -m partition_tools imprt edges.csv",
            "'imprt'",
            r"(\w+) perhaps",
            f"python -m partition_tools {{}} edges.csv {OUT}",
        ),
        (
            "python -m partition_tools train --graph graph.h5",
            "train",
            "`(hpcgnn train)`",
            "{} --graph graph.h5 --dry-run 1",
        ),
        ("hpcgnn import edges.csv", "import", "`(.* import)`", f"{{}} edges.csv {OUT}"),
        (f"{IMPORT} edges.csv -o graph.h5", "graph.h5", "--force", f"{MAKE} {SPLIT} -o graph.h5 {{}}"),
        (f"{IMPORT} edges.csv --format csv {OUT}", "csv", r"(\w+) perhaps", f"{IMPORT} edges.csv --format {{}} {OUT}"),
        (f"{MAKE} --train 60 --val 20 {OUT}", "60 20", "--train [0-9.]+ --val [0-9.]+", f"{MAKE} {{}} {OUT}"),
        (f"{IMPORT} graph.h5 {OUT}", "graph.h5", "python -m .* 1,2,4", "{}"),
        ("python -m partition_tools partition graph.h5", "add list remove", "python -m .* 1,2,4", "{}"),
        (
            "python -m partition_tools partition add graph.h5 --parts 4",
            "--parts",
            "--ranks",
            "python -m partition_tools partition add graph.h5 {} 4",
        ),
        (
            "python -m partition_tools partition add graph.h5 --ranks 2 --method metis2",
            "metis2",
            r"(\w+) perhaps",
            "python -m partition_tools partition add graph.h5 --ranks 2 --method {}",
        ),
        ("python -m partition_tools verify graphs.h5", "graphs.h5", "graph.h5", "python -m partition_tools verify {}"),
    ],
    "tables": [
        (
            f"{IMPORT} cited.csv {OUT}",
            "cited.csv citing cited year",
            "--set edges.columns=[a-z,_]+",
            f"{IMPORT} cited.csv {{}} {OUT}",
        ),
        (f"{IMPORT} words.csv {OUT}", "words.csv src ant-red", "--relabel", f"{IMPORT} words.csv {{}} {OUT}"),
        (f"{IMPORT} semi.csv {OUT}", "semi.csv ';'", "`(.* commas.csv)`", f"{{}} && {IMPORT} commas.csv {OUT}"),
        (f"{IMPORT} edges.csv --features nan.csv {OUT}", "nan.csv size 6 NaN", "mend", ""),
        (f"{IMPORT} words.csv --relabel --features word-nan.csv {OUT}", "word-nan.csv size bee-blue NaN", "mend", ""),
        (f"{IMPORT} edges.csv --features text.csv {OUT}", "text.csv size 'old'", "not a number", ""),
        (f"{IMPORT} edges.csv --features few.csv {OUT}", "few.csv 20", "give each node a row", ""),
        (
            f"{IMPORT} edges.csv --features twice.csv {OUT}",
            "twice.csv (6)",
            "leave one",
            f"uniq twice.csv once.csv && {IMPORT} edges.csv --features once.csv {OUT}",
        ),
        (
            f"{IMPORT} edges.csv --features no-id.csv {OUT}",
            "no-id.csv node age size",
            "--set tables.rows=position",
            f"{IMPORT} edges.csv --features no-id.csv {{}} {OUT}",
        ),
        (
            f"{IMPORT} {TABLES} --labels some.csv --splits splits.csv {OUT}",
            "some.csv kind 30 val",
            "take it out of the split",
            f"{IMPORT} {TABLES} --labels some.csv {SPLIT} {OUT}",
        ),
        (
            f"{MAKE} --splits named.csv {OUT}",
            "named.csv 'training'",
            r"(\w+) perhaps",
            f"sed s/training/{{}}/ named.csv > s.csv && {MAKE} --splits s.csv {OUT}",
        ),
        (
            f"{IMPORT} {TABLES} --labels years.csv {SPLIT} {OUT}",
            "years.csv year 2029",
            "--set labels.task=regression",
            f"{IMPORT} {TABLES} --labels years.csv {{}} {SPLIT} {OUT}",
        ),
        (
            f"{IMPORT} {TABLES} --labels real.csv {SPLIT} {OUT}",
            "real.csv y 0.5",
            "--set labels.task=regression",
            f"{IMPORT} {TABLES} --labels real.csv {{}} {SPLIT} {OUT}",
        ),
        (
            f"{IMPORT} {TABLES} {SPLIT} -o none.h5",
            "--train --val",
            "--labels FILE",
            f"{IMPORT} {TABLES} {SPLIT} --labels labels.csv {OUT}",
        ),
    ],
    "training": [
        ("hpcgnn trian --graph graph.h5", "'trian'", r"(\w+) perhaps", "hpcgnn {} --graph graph.h5 --dry-run 1"),
        (f"{TRAIN} --graph graphs.h5", "graphs.h5", "graph.h5", f"{TRAIN} --graph {{}}"),
        (f"{TRAIN} --graph edges.csv", "edges.csv", "`(python .*)`", "{}"),
        (f"{TRAIN} graph.h5", "'graph.h5'", "--graph graph.h5", f"{TRAIN} {{}}"),
        (
            f"{TRAIN} --graph graph.h5 --learning-rate 0.1",
            "--learning-rate",
            "--lr",
            f"{TRAIN} --graph graph.h5 {{}} 0.1",
        ),
        (f"{TRAIN} --graph graph.h5 --droput 0.1", "--droput", "--dropout", f"{TRAIN} --graph graph.h5 {{}} 0.1"),
        (
            f"{TRAIN} --graph graph.h5 --batch-size 64",
            "--batch-size",
            "there are no batches",
            f"{TRAIN} --graph graph.h5",
        ),
        *(
            (
                f"{TRAIN} --graph graph.h5 --model {name}",
                name,
                f"({ours}) perhaps",
                f"{TRAIN} --graph graph.h5 --model {{}}",
            )
            for name, ours in (
                ("graphsage", "sage"),
                ("SAGEConv", "sage"),
                ("GraphConv", "gcn"),
                ("GCN", "gcn"),
                ("gatv3", "gatv2"),
            )
        ),
        (
            f"{TRAIN} --graph graph.h5 --optimizer Adam",
            "'Adam'",
            r"(\w+) perhaps",
            f"{TRAIN} --graph graph.h5 --optimizer {{}}",
        ),
        (
            f"{TRAIN} --graph graph.h5 --precision bf16",
            "'bf16'",
            r"(\w+) perhaps",
            f"{TRAIN} --graph graph.h5 --precision {{}}",
        ),
        (
            f"{TRAIN} --graph graph.h5 --set model.hiden=8",
            "'hiden'",
            r"(\S+) perhaps",
            f"{TRAIN} --graph graph.h5 --set {{}}=8",
        ),
        (
            f"{TRAIN} --graph graph.h5 --epochs 1e3",
            "--epochs '1e3'",
            "a whole number",
            f"{TRAIN} --graph graph.h5 --epochs 1000",
        ),
        (
            f"{TRAIN},3 --graph graph.h5 --partition metis",
            "graph.h5 'metis' 3 1,",
            "`(python .*)`",
            f"{{}} && {TRAIN},3 --graph graph.h5 --partition metis",
        ),
        (
            f"{TRAIN} --graph graph.h5 --partition meits",
            "graph.h5 'meits'",
            "--partition metis",
            f"{TRAIN} --graph graph.h5 {{}}",
        ),
        (f"{TRAIN} --graph none.h5", "none.h5", "--task links", f"{TRAIN} --graph none.h5 {{}}"),
        (
            f"{TRAIN} --graph graph.h5 --task regression",
            "graph.h5 --task",
            "--set labels.task=regression",
            f"{IMPORT} {TABLES} --labels real.csv {{}} {SPLIT} {OUT} && {TRAIN} --graph g.h5 --task regression",
        ),
        (
            f"{RUN} --memory 1M",
            "--memory 1M",
            "--memory [2-9][0-9]+M",
            "rm -r runs/first && hpcgnn train --graph graph.h5 --hidden 8 --epochs 1 --run-dir runs/first {}",
        ),
    ],
    "a run": [
        (RUN, "runs/first", "--resume", f"{RUN} {{}}"),
        (f"{RUN} --resume --hidden 9", "hidden '8' '9'", "--hidden 8", f"{RUN} --resume {{}}"),
        ("hpcgnn predict runs/fist -o q.csv", "runs/fist", "runs/first", "hpcgnn predict {} -o q.csv"),
        ("hpcgnn predict runs/first -o p.txt", "p.txt", r"p\.csv", "hpcgnn predict runs/first -o {} --force"),
        ("hpcgnn predict runs/first -o p.csv", "p.csv", "--force", "hpcgnn predict runs/first -o p.csv {}"),
        ("hpcgnn predict runs/first --out t.csv", "--out ", "--output", "hpcgnn predict runs/first {} t.csv"),
        ("hpcgnn predict runs/first", "-o/--output", "`(.* --help)`", "{}"),
        (
            "hpcgnn predict runs/first -o r.csv --nodes some.text",
            "some.text",
            r"some\.txt",
            "hpcgnn predict runs/first -o r.csv --nodes {}",
        ),
        ("hpcgnn evaluate graph.h5", "graph.h5 config.toml", "hpcgnn train", ""),
    ],
}

#: Stages of an import and the lines of a run that begins, which are no message of a mistake.
LOG = re.compile(r"\[ *[\d.]+ s\] |graph \S+: |resuming |epoch |\w+: (\d|rank)|partition_tools: warning: |$")
UNLABELLED = "warning: the graph has no labels, so"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables as a newcomer has them, and the right graph file."""
    folder, draw = tmp_path_factory.mktemp("first"), random.Random(1)
    n = len(NAMES)
    edges = [(i, (i + 1) % n) for i in range(n)] + [tuple(draw.sample(range(n), 2)) for _ in range(2 * n)]
    rows = [f"{i},{draw.random():.3f},{i % 7}" for i in range(n)]
    kinds = [f"{i},{name.split('-')[1]}" for i, name in enumerate(NAMES)]
    tables = {
        "edges": ["src,dst", *(f"{a},{b}" for a, b in edges)],
        "words": ["src,dst", *(f"{NAMES[a]},{NAMES[b]}" for a, b in edges)],
        "cited": ["citing,cited,year", *(f"{a},{b},1999" for a, b in edges)],
        "semi": ["src;dst", *(f"{a};{b}" for a, b in edges)],
        "features": ["id,age,size", *rows],
        "nan": ["id,age,size", *rows[:6], "6,1,nan", *rows[7:]],
        "word-nan": ["id,age,size", *(f"{name},1,{'' if name == 'bee-blue' else 2}" for name in NAMES)],
        "text": ["id,age,size", *rows[:6], "6,1,old", *rows[7:]],
        "few": ["id,age,size", *rows[:20]],
        "twice": ["id,age,size", *rows[:7], *rows[6:]],
        "no-id": ["node,age,size", *rows],
        "labels": ["id,kind", *kinds],
        "some": ["id,kind", *kinds[:30]],
        "splits": ["id,split", *(f"{i},{'val' if i % 3 == 0 else 'train'}" for i in range(n))],
        "named": ["id,split", *(f"{i},{'val' if i % 3 == 0 else 'training'}" for i in range(n))],
        "years": ["id,year", *(f"{i},{1990 + i}" for i in range(n))],
        "real": ["id,y", *(f"{i},{i + 0.5}" for i in range(n))],
    }
    for name, lines in tables.items():
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (folder / "some.txt").write_text("3\n5\n")
    for words in (*MAKE.split()[3:], *SPLIT.split(), "-o", "graph.h5"), "partition add graph.h5 --ranks 1,2".split():
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            assert tools([*words]) == 0
    return folder


@pytest.fixture
def shell(folder, command, capsys, monkeypatch):
    """shell(line) runs commands joined by &&; (exit code, lines of errors, else of warnings)."""
    monkeypatch.chdir(folder)

    def run(line):
        for words in (part.split() for part in line.split(" && ")):
            capsys.readouterr()
            try:
                if words[0] == "hpcgnn":
                    done = command(*words[1:])
                    code, err = done.code, done.err
                elif words[:3] == "python -m partition_tools".split():
                    code, err = tools(words[3:]), capsys.readouterr().err
                else:
                    code, err = subprocess.run(["bash", "-c", " ".join(words)], check=False).returncode, ""
            except SystemExit as left:  # --help
                code, err = left.code, ""
            if code:
                break
        return code, [text for text in err.splitlines() if code and not LOG.match(text) or UNLABELLED in text]

    return run


@pytest.mark.parametrize("part", MISTAKES)
def test_a_mistake_ends_in_its_remedy(shell, part):
    if part == "a run":
        assert shell(f"rm -rf runs p.csv q.csv r.csv t.csv && {RUN} && hpcgnn predict runs/first -o p.csv")[0] == 0
    if part == "training":
        assert shell(f"rm -rf none.h5 && {IMPORT} {TABLES} -o none.h5")[0] == 0
    for mistake, names, remedy, mended in MISTAKES[part]:
        code, lines = shell(mistake)
        assert len(lines) == 1 and code == (0 if "-o none.h5" in mistake else 2), (mistake, code, lines)
        assert all(name in lines[0] for name in names.split(" ") if name), (mistake, names, lines)
        assert len(lines[0].split()) <= 50, (mistake, len(lines[0].split()), lines)
        found = re.search(remedy, lines[0])
        assert found, (mistake, remedy, lines)
        if mended:
            pasted = mended.format(found[found.re.groups])
            code, lines = shell(pasted)
            assert code == 0, (pasted, lines)


def test_there_are_many():
    assert sum(map(len, MISTAKES.values())) >= 50


def test_ctrl_c_and_a_run_that_goes_on(shell, monkeypatch, request):
    """Whoever stops a command learns what is left, and whoever starts a run twice that it is going on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with monkeypatch.context() as patch:
        patch.setattr(import_graph, "canonical", lambda *args: signal.raise_signal(signal.SIGINT))
        assert shell(f"{IMPORT} edges.csv -o broken.h5") == (130, ["partition_tools: interrupted; no file was changed"])
    assert shell("ls broken.h5")[0] != 0
    shell("rm -rf runs")
    run = RUN.replace("--epochs 2", "--epochs 5")
    with monkeypatch.context() as patch:
        before = RunDir.append
        patch.setattr(RunDir, "append", lambda *each: before(*each) or signal.raise_signal(signal.SIGINT))
        code, lines = shell(run)
    stopped = next(line for line in lines if "of 5 (Ctrl-C)" in line)
    assert code == EXIT_STOPPED and shell(f"{run} {stopped.split('continue with ')[1]}")[0] == 0
    with contextlib.closing(RunDir("runs/first", True)):
        code, lines = shell(f"{run} --resume")
    assert code == 2 and len(lines) == 1 and "runs/first is in use by another job" in lines[0]
