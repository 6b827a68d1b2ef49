"""The command line, called in this process."""

from dataclasses import replace

import pytest
from partition_helpers import odd_graph, save_npz, view

from partition_tools.cli.main import main


@pytest.fixture
def cli(capsys):
    """cli(word, ...) -> (exit code, stdout, stderr); words may be paths and numbers."""

    def run(*words):
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def imports(cli, tmp_path):
    """imports(input, word, ...) -> the `View` of the written g.h5; its field `said` has the lines of the command."""

    def run(source, *words):
        code, out, err = cli("import", source, "-o", tmp_path / "g.h5", "--force", *words)
        assert code == 0, err
        return replace(view(tmp_path / "g.h5"), said=out + err)

    return run


@pytest.fixture
def archive(tmp_path):
    """archive(option, ..., array=...) -> the words of an import of an archive with these arrays."""

    def make(*options, **changes):
        save_npz(tmp_path / "g.npz", *odd_graph(), 60, **{"num_classes": None} | changes)
        return "import", tmp_path / "g.npz", "-o", tmp_path / "g.h5", "--force", *options

    return make


@pytest.fixture
def fails(cli, tmp_path):
    """fails(word, ...) -> the one-line error; checks exit code 2 and that no file appeared or changed anywhere
    below."""

    def run(*words):
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        code, _, err = cli(*words)
        lines = [line for line in err.splitlines() if not line.startswith("[") and "warning" not in line]
        assert code == 2 and len(lines) == 1 and lines[0].startswith("partition_tools: error: "), err
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        return lines[0]

    return run
