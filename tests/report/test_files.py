"""The files of a report: they can be read by what they are for, agree with the study, and the page stands alone."""

import io
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import matplotlib.image
import pandas as pd
import pytest

from hpcgnn.errors import ConfigError
from hpcgnn.report.figures import FIGURES, draw_figures
from hpcgnn.report.read import read_runs
from hpcgnn.report.study import build_study

from .conftest import change, write_report


def test_tables(written):
    study, folder = written
    frame = pd.read_csv(folder / "scaling.csv")
    pd.testing.assert_frame_equal(frame, study.points, check_dtype=False)
    assert pd.read_csv(folder / "runs.csv")["run"].tolist() == [run.name for run in study.runs]
    problems = pd.read_csv(folder / "problems.csv")
    assert problems.values.tolist() == [["missing", "no such directory"]]
    against = pd.read_csv(folder / "baseline.csv")
    assert against[["label", "ranks"]].values.tolist() == [["cap 0.05 MiB", 2]]
    medians = study.points.set_index(["label", "ranks"])["epoch_seconds"]
    expected = medians["cap 0.05 MiB", 2] / medians["cap 8 MiB", 2]
    assert against["epoch_seconds"].item() == pytest.approx(expected)


def test_text_tables(written):
    _, folder = written
    for path in folder.glob("*.tex"):
        text = path.read_text()
        assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
        body = text[text.index(r"\toprule") :]
        columns = len(re.search(r"\\begin\{tabular\}\{(\w+)\}", text)[1])
        for line in (line for line in body.splitlines() if line.endswith(r"\\")):
            assert len(re.findall(r"(?<!\\)&", line)) == columns - 1, line
            assert not re.search(r"(?<!\\)[_%#]", line), line
    markdown = (folder / "scaling.md").read_text()
    widths = {line.count("|") for line in markdown.splitlines() if line.startswith("|")}
    assert len(widths) == 1 and "cap 0.05 MiB" in markdown
    assert "no such directory" in (folder / "report.md").read_text()


def test_figures(written):
    _, folder = written
    expected = {figure.name for figure in FIGURES if not figure.name.startswith("memory_")}
    for kind in ("png", "svg"):
        assert {path.stem for path in folder.glob(f"*.{kind}")} == expected
    for name in expected:
        pixels = matplotlib.image.imread(io.BytesIO((folder / f"{name}.png").read_bytes()))
        assert pixels.std() > 0.01, "not an empty sheet"
        assert ElementTree.fromstring((folder / f"{name}.svg").read_bytes()).tag == "{http://www.w3.org/2000/svg}svg"


def test_ideal_and_labels_are_in_the_figures(written):
    """The words of an SVG are drawn as shapes, but kept as comments."""
    _, folder = written
    words = (folder / "memory.svg").read_text()
    for text in ("ideal", "cap 0.05 MiB", "MPI ranks", "training memory, largest rank (MiB)"):
        assert f"<!-- {text} -->" in words


def test_the_same_runs_give_the_same_figures(written, drawing_only, monkeypatch):
    """Whatever the user's matplotlibrc says."""
    study, folder = written
    for name, value in {"text.usetex": True, "figure.facecolor": "red", "font.size": 30}.items():
        monkeypatch.setitem(matplotlib.rcParams, name, value)
    drawing_only("breakdown", "loss")
    for drawn in draw_figures(study):
        for kind, image in drawn.images.items():
            assert image == (folder / f"{drawn.figure.name}.{kind}").read_bytes(), (drawn.figure.name, kind)


def test_a_backend_of_another_environment():
    """A notebook hands its MPLBACKEND on, at which the import of matplotlib fails; a backend that is there stays."""
    program = "from hpcgnn.report.style import drawing\nwith drawing() as sheet: sheet()\n"
    program += "import matplotlib, os; print(os.environ['MPLBACKEND'], matplotlib.rcParams['backend'])"
    for backend, shown in (("elsewhere", "elsewhere "), ("svg", "svg svg\n")):
        environment = os.environ | {"MPLBACKEND": backend}
        assert subprocess.check_output([sys.executable, "-c", program], env=environment, text=True).startswith(shown)


class Page(HTMLParser):
    """Collects tags, what they point to, and the text; complains about tags that do not match."""

    VOID = {"meta", "img", "br"}

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.sources, self.words = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.sources += [value for name, value in attributes if name in ("src", "href", "action", "data")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_stands_alone(written):
    study, folder = written
    text = (folder / "report.html").read_text()
    page = Page(text)
    assert page.sources and all(source.startswith("data:image/svg+xml;base64,") for source in page.sources)
    assert page.tags.count("img") == len(list(folder.glob("*.svg")))
    assert not {"script", "link", "iframe", "object", "embed"} & set(page.tags)
    assert "default-src 'none'" in text and "url(" not in text and "@import" not in text
    words = " ".join(page.words)
    for run in study.runs:
        assert run.name in words
    assert "no such directory" in words


def test_everything_is_escaped(copied, tmp_path, drawing_only):
    """Names of runs, labels, graphs, hosts and commands are others' words, and TeX, Markdown and HTML all have
    signs.
    """
    drawing_only("epoch_time", "validation")
    nasty = '<script>alert("1")</script>&|_%$#'
    paths = [copied("p1-a", "<b>1&|_%"), copied("p2-a", "plain")]
    for path in paths:
        change(path, "summary.json", lambda s: s["config"]["schedule"].update(schedule=nasty))
        change(path, "summary.json", lambda s: s.update(graph=nasty, hosts=[nasty], command=[nasty], metric=nasty))
    found, broken = read_runs([*paths, tmp_path / "<i>"])
    write_report(build_study(found, ["schedule"]), broken, tmp_path / "out", title=nasty)
    text = (tmp_path / "out/report.html").read_text()
    page = Page(text)
    assert not {"script", "b", "i"} & set(page.tags) and page.words.count(nasty) >= 1
    assert r"\_\%\$\#" in (tmp_path / "out/scaling.tex").read_text()
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in (tmp_path / "out/runs.md").read_text().splitlines()[2:5]}
    assert len(widths) == 1


def test_an_earlier_report_is_replaced(runs, tmp_path, drawing_only):
    drawing_only("loss")
    out = tmp_path / "deep/report"
    out.mkdir(parents=True)
    for name in ("notes.txt", "speedup.png", "baseline.tex"):
        (out / name).write_text("earlier")
    with pytest.raises(ConfigError, match="baseline.tex exists"):  # whose it is nothing tells
        write_report(build_study(runs("p1-a")), [], out)
    (out / "report.md").write_text("# Runs\n\nMade by hpcgnn 0.1.0 on 2026-01-01")
    write_report(build_study(runs("p1-a")), [], out)
    assert not (out / "speedup.png").exists() and not (out / "baseline.tex").exists()
    assert (out / "notes.txt").read_text() == "earlier" and (out / "runs.tex").read_text() != "earlier"
    assert not list(out.glob(".*"))
