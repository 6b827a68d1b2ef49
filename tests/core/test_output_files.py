"""Where a command may write: every kind of clash, in the one function that all commands ask, and in the commands."""

import os
import socket
import stat

import graphs
import pytest

from hpcgnn.errors import ConfigError
from hpcgnn.output_files import check_outputs, files_below, files_of_run
from hpcgnn.records import replaced_by

from .forked import start, train


def refusal(path, inputs=(), force=True, option="-o"):
    """The one line of the refusal; nothing at the path has changed but when it was looked at."""
    before = os.lstat(path)[:7] + os.lstat(path)[8:] if os.path.lexists(path) else None
    with pytest.raises(ConfigError) as caught:
        check_outputs({option: path}, inputs, force)
    assert (os.lstat(path)[:7] + os.lstat(path)[8:] if os.path.lexists(path) else None) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def there(tmp_path, monkeypatch):
    """A folder with an input in it, which is also the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.csv").write_text("0,1\n")
    return tmp_path


def test_new_names_and_files_of_nobody(there):
    (there / "old.json").write_text("{}")
    check_outputs({"-o": "new.json", "--json": there / "other.json", "--plot": None, "--csv": ""}, ["in.csv", None, ""])
    check_outputs({"-o": "old.json"}, ["in.csv", "absent.toml"], force=True)
    check_outputs({})
    assert refusal("old.json", force=False) == (
        "expected a new name; -o old.json exists; choose another name or overwrite it with --force"
    )
    assert "expected a new name; old.json exists" in refusal("old.json", force=False, option="")


@pytest.mark.parametrize("force", [True, False], ids=["--force", "without"])
def test_an_input_by_any_of_its_names(there, force):
    os.link("in.csv", "hard.csv")
    os.symlink("in.csv", "soft.csv")
    os.symlink("hard.csv", "both.csv")
    os.mkdir("folder")
    os.symlink("..", "folder/back")
    for name in ("in.csv", there / "in.csv", "./in.csv", "folder/../in.csv", "folder/back/in.csv"):
        assert "is the input" in refusal(name, ["absent", "in.csv"], force)
    for name in ("hard.csv", "soft.csv", "both.csv"):
        assert f"-o {name} is the input in.csv itself; choose another name" == refusal(name, ["in.csv"], force)
        assert f"is the input {name} itself" in refusal("in.csv", [name], force), "or the input is the link"
    assert "is the input " in refusal("hard.csv", files_below(there, (".h5",)), force)


def test_where_nothing_can_be_written(there):
    os.mkfifo("pipe")
    os.mkdir("folder")
    for name, target in (("to-folder", "folder"), ("to-null", "/dev/null"), ("circle", "circle"), ("away", "absent/x")):
        os.symlink(target, name)
    (there / "file").write_text("")
    os.chmod("file", 0o444)
    kinds = {"pipe": "a pipe", "folder": "a directory", "to-folder": "a directory", "socket": "a socket"}
    kinds |= {"/dev/null": "a device", "to-null": "a device"}
    wanted = {name: f"-o {name} is {kind}; expected a plain file or a new name" for name, kind in kinds.items()} | {
        "absent/p.h5": "cannot write -o absent/p.h5: there is no directory absent; make it first",
        "file": "-o file is write-protected; allow the change with chmod u+w, or choose another name",
    }
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert {name: refusal(name) for name in wanted} == wanted
    for name, words in {
        "circle": "symbolic links; choose another name",
        "file/p.h5": "there is no directory file",
        "n" * 300: "cannot write",
        "away": "there is no directory",
    }.items():
        assert words in refusal(name)
    with pytest.raises(OSError, match="no plain file"), replaced_by("/dev/null"):
        pass
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_names_of_one_command_differ(there):
    os.symlink("one.json", "two.json")
    for name in ("./one.json", "two.json"):
        with pytest.raises(ConfigError, match=f"--plot {name} is also named by --json"):
            check_outputs({"--json": "one.json", "--plot": name})


def test_a_link_stays_a_link(there):
    (there / "disk").mkdir()
    (there / "disk" / "old.csv").write_text("old")
    os.symlink("disk/old.csv", "old.csv")
    os.symlink("disk/new.csv", "new.csv")
    for name in ("old.csv", "new.csv"):
        check_outputs({"-o": name}, force=True)
        with replaced_by(name) as temporary:
            assert os.path.dirname(temporary) == str(there / "disk"), "on the disk that it is to lie on"
            with open(temporary, "w") as file:
                file.write("written")
        assert os.path.islink(name) and (there / "disk" / name).read_text() == "written"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(folder, its files) with a graph g.h5, a run r with every file of a run, a configuration and a list of nodes."""
    folder = tmp_path_factory.mktemp("outputs")
    graphs.planted(folder / "g.h5", [1, 2], clusters=8, nodes=200, degree=5, features=6)
    (folder / "plug.py").write_text("")
    (folder / "nodes.txt").write_text("1\n2\n")
    (folder / "c.toml").write_text('[data]\ngraph = "g.h5"\n')
    options = ("--epochs", 2, "--hidden", 4, "--checkpoint-every", 1)
    done = train(0, "--graph", "g.h5", "--run-dir", "r", "--plugin", "plug.py", *options, cwd=folder)
    assert done.code == 0, done.err
    done = start(0, "-m", "hpcgnn", "evaluate", "r", cwd=folder)
    assert done.code == 0, done.err
    return folder


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_all_that_a_run_leaves_is_known_as_its_own(run, monkeypatch):
    monkeypatch.chdir(run)
    files = [path for path in (run / "r").rglob("*") if path.is_file()]
    names = {path.relative_to(run / "r").parts[0] for path in files}
    assert {"config.toml", "plugin.py", "curves.png", "evaluation.json", "checkpoints", "ranks.jsonl"} <= names
    assert set(files) == {path for path in files_of_run(run / "r") if path.exists()}
    for path in [*files, run / "r" / "checkpoints" / "epoch-000009.h5", run / "r" / "trace" / "new"]:
        for force in (True, False):
            with pytest.raises(ConfigError, match="is a file of the run r; choose another name"):
                check_outputs({"-o": path}, force=force)
    check_outputs({"-o": run / "r" / "predictions.csv"})
    os.symlink(run / "r", run / "link")
    assert "is a file of the run" in refusal("link/config.toml")
    (run / "link").unlink()


CHECKPOINT = "r/checkpoints/epoch-000002.h5"
# (the command, the option that names its output, a name that it accepts, what it reads)
COMMANDS = {
    "predict": ("predict r --nodes nodes.txt", "-o", "clash.h5", ("g.h5", "nodes.txt", CHECKPOINT)),
    "export": ("export r", "-o", "clash.safetensors", ("g.h5", CHECKPOINT)),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_a_command_does_not_replace_what_it_reads(run, command, case):
    check_inputs_stay(run, command, *COMMANDS[case])


def check_inputs_stay(run, command, words, option, name, inputs):
    """A command with an output of that name, which is a link to each of its inputs."""
    clash = run / name
    for number, each in enumerate(inputs):
        (os.symlink if number else os.link)(run / each, clash)
        before = contents(run)
        try:
            done = command(*words.split(), option, name, "--force", cwd=run)
            assert done.code == 2 and len(done.errors) == 1, done.err
            assert "is the input" in done.err or "is a file of the run" in done.err, done.err
            assert contents(run) == before
        finally:
            clash.unlink()


@pytest.mark.parametrize("dry", [(), ("--dry-run", "1,2")], ids=["run", "dry run"])
def test_the_name_says_what_a_file_of_predictions_is(run, command, dry):
    before = contents(run)
    for name, words in (
        ("p.txt", "ends with .h5 or .hdf5 (arrays), or .csv (a table), got '.txt'"),
        ("p", "got 'none of them'"),
        ("absent/p.h5", "there is no directory"),
    ):
        done = command("predict", "r", "-o", name, *dry, cwd=run)
        assert done.code == 2 and len(done.errors) == 1 and words in done.errors[0], done.err
    assert contents(run) == before


def test_a_report_replaces_a_report_and_nothing_else(run, command, monkeypatch):
    monkeypatch.setattr("hpcgnn.report.write.draw_figures", lambda study: {"learning-loss": {"png": b"drawn"}})
    out = run / "out"
    out.mkdir()
    for name in ("learning-loss.png", "study.csv", "memory.png"):  # the second is one that it writes
        (out / name).write_text("mine")
    words = ("report", "r", "--out", "out")
    done = command(*words, cwd=run)
    assert done.code == 2 and "--out out/learning-loss.png exists" in done.err, done.err
    assert {path.name for path in out.iterdir()} == {"learning-loss.png", "study.csv", "memory.png"}
    assert command(*words, "--force", cwd=run).code == 0
    assert (out / "memory.png").read_text() == "mine", "which this report does not have"
    assert command(*words, cwd=run).code == 0, "files of a report are replaced"
    (out / "report.html").unlink()
    os.link(run / "r" / "summary.json", out / "report.html")
    before = contents(run / "r")
    done = command(*words, "--force", cwd=run)
    assert done.code == 2 and "is the input" in done.err, done.err
    assert contents(run / "r") == before
    for name in ("r", "r/ranks", "g.h5"):
        assert command(*words[:-1], name, "--force", cwd=run).code == 2
    assert contents(run / "r") == before
