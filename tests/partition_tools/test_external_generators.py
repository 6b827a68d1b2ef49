"""Generated graphs that do not fit memory, and graphs whose edges several processes draw, are the same files."""

import subprocess
import sys

import pytest

from hpcgnn.errors import FormatError
from partition_tools.canonical.canonical import ImportOptions
from partition_tools.cli.generate_graph import draw_part, generate_graph
from partition_tools.generators import GENERATORS, drawing
from partition_tools.generators.spec import Spec
from partition_tools.out_of_core import sorting
from partition_tools.workspace.progress import Reporter

GRAPHS = {
    "rmat": ("rmat", Spec(900, 20.0, 3, 4, seed=1)),
    "rmat-directed-typed": ("rmat", Spec(500, 12, 3, 4, seed=2, directed=True, weighted=True, edge_types=3)),
    "planted-typed": ("planted", Spec(700, 9, 3, 4, seed=3, weighted=True, edge_types=4, node_types=2)),
}


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(sorting, "MOST_RUN", 1000)
    monkeypatch.setattr(sorting, "MOST_RANGE", 700)
    monkeypatch.setattr(drawing, "BLOCK", 300)  # blocks of draws, which decide what is drawn: of both ways alike


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("self_loops", ["keep", "add"])
def test_the_same_file_as_in_memory(tmp_path, small_pieces, name, self_loops):
    model, spec = GRAPHS[name]
    options = ImportOptions(self_loops=self_loops)
    generate_graph(model, tmp_path / "a.h5", spec, options=options, memory=1 << 30)
    generate_graph(model, tmp_path / "b.h5", spec, options=options, memory=1 << 17)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.h5", "b.h5"]


def test_parts_are_drawn_apart(tmp_path, small_pieces):
    """What the parts have drawn is not drawn again, and the file is the same."""
    model, spec = GRAPHS["rmat"]
    options = ImportOptions()
    generate_graph(model, tmp_path / "a.h5", spec, options=options)
    memory = 1 << 18
    for index in (1, 0, 2):
        draw_part(model, tmp_path / "b.h5", spec, options, (index, 3), memory, reporter=Reporter())
    work = tmp_path / ".b.h5.work"
    runs = {path: path.stat().st_mtime_ns for path in work.rglob("*.key.npy")}
    assert len(runs) == -(-spec.num_edges // 900)
    seen = []
    form = sorting.Runs.form

    def note(self, make, count, *rest):
        if self.name == "draws.0":
            seen.append({path: path.stat().st_mtime_ns for path in work.rglob("*.key.npy")})
        form(self, make, count, *rest)
        if self.name == "draws.0":
            seen.append({path: path.stat().st_mtime_ns for path in work.rglob("*.key.npy")})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting.Runs, "form", note)
        generate_graph(model, tmp_path / "b.h5", spec, options=options, memory=memory)
    assert seen == [runs, runs]
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_parts_of_another_graph_are_refused(tmp_path):
    options = ImportOptions()
    draw_part("rmat", tmp_path / "b.h5", GRAPHS["rmat"][1], options, (0, 2), 1 << 20, reporter=Reporter())
    with pytest.raises(FormatError, match="other arguments"):
        draw_part("rmat", tmp_path / "b.h5", Spec(10, 2, 3, 4), options, (1, 2), 1 << 20, reporter=Reporter())


def test_parts_at_a_time_on_the_command_line(tmp_path):
    words = ["rmat", "--nodes", "900", "--degree", "20", "--features", "3", "--classes", "4", "--seed", "1"]
    command = [
        sys.executable,
        "-m",
        "partition_tools",
        "generate",
        *words,
        "-o",
        str(tmp_path / "b.h5"),
        "--memory",
        "64M",
    ]
    started = [subprocess.Popen([*command, "--part", f"{index}/2"]) for index in range(2)]
    assert [process.wait() for process in started] == [0, 0]
    assert not (tmp_path / "b.h5").exists()
    subprocess.run(command, check=True)
    generate_graph("rmat", tmp_path / "a.h5", GRAPHS["rmat"][1])
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    wrong = subprocess.run([*command, "--part", "2/2"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "I/N" in wrong.stderr


def test_a_killed_call_does_not_draw_again(tmp_path, small_pieces, monkeypatch):
    model, spec = GRAPHS["rmat"]
    monkeypatch.setattr("partition_tools.cli.main.generate_graph.write_with_bar", killed)
    with pytest.raises(KeyboardInterrupt):
        generate_graph(model, tmp_path / "b.h5", spec, memory=1 << 17)
    monkeypatch.undo()
    monkeypatch.setattr(drawing, "BLOCK", 300)
    drawn = []
    monkeypatch.setattr(drawing, "_keys", lambda *given: drawn.append(given))
    generate_graph(model, tmp_path / "b.h5", spec, memory=1 << 17)
    assert not drawn
    monkeypatch.undo()
    monkeypatch.setattr(drawing, "BLOCK", 300)
    generate_graph(model, tmp_path / "a.h5", spec)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def killed(*_, **__):
    raise KeyboardInterrupt


def test_parts_are_not_thrown_away_by_a_slip(tmp_path):
    """The last call has another seed than the parts: that is said, and what they drew stays."""
    spec, other = GRAPHS["rmat"][1], Spec(900, 20.0, 3, 4, seed=5)
    draw_part("rmat", tmp_path / "b.h5", spec, ImportOptions(), (0, 1), 1 << 20, reporter=Reporter())
    before = sorted((tmp_path / ".b.h5.work").rglob("*"))
    with pytest.raises(FormatError, match="other arguments"):
        generate_graph("rmat", tmp_path / "b.h5", other, memory=1 << 20)
    assert sorted((tmp_path / ".b.h5.work").rglob("*")) == before


def test_the_graph_is_not_made_while_a_part_is_drawn(tmp_path, monkeypatch):
    """Parts may be drawn at a time; whoever makes the graph waits for none of them, and says so."""
    model, spec = GRAPHS["rmat"]
    generate = GENERATORS[model].generate

    def meanwhile(*given):
        monkeypatch.undo()
        draw_part(model, tmp_path / "b.h5", spec, ImportOptions(), (1, 2), 1 << 20, reporter=Reporter())
        with pytest.raises(FormatError, match="being written by another process"):
            generate_graph(model, tmp_path / "b.h5", spec, memory=1 << 20)
        return generate(*given)

    monkeypatch.setattr(GENERATORS[model], "generate", meanwhile)
    draw_part(model, tmp_path / "b.h5", spec, ImportOptions(), (0, 2), 1 << 20, reporter=Reporter())
    generate_graph(model, tmp_path / "b.h5", spec, memory=1 << 20)
    generate_graph(model, tmp_path / "a.h5", spec)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.h5", "b.h5"]
