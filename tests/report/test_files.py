"""The files of a report: their programs can read them, they agree with the study, and the page stands alone."""

import html
import io
import os
import re
import subprocess
import sys

import matplotlib
import matplotlib.image
import pandas as pd
import pytest

from hpcgnn.errors import ConfigError
from hpcgnn.report.figures import FIGURES, draw_figures
from hpcgnn.report.read import read_runs
from hpcgnn.report.study import build_study
from hpcgnn.report.write import write_report

from .conftest import change


def test_tables(written):
    study, folder = written
    pd.testing.assert_frame_equal(pd.read_csv(folder / "study.csv"), study.points, check_dtype=False)
    assert pd.read_csv(folder / "runs.csv")["run"].tolist() == [run.name for run in study.runs]
    for path in folder.glob("*.tex"):
        text = path.read_text()
        assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
        columns = len(re.search(r"\\begin\{tabular\}\{([lr]+)\}", text.replace("@{}", ""))[1])
        for line in (line for line in text.splitlines() if line.endswith(r"\\")):
            wide = line.count(r"\multicolumn{2}")
            assert len(re.findall(r"(?<!\\)&", line)) + wide == columns - 1, line
            assert not re.search(r"(?<!\\)[_%#]", line), line
    said = (folder / "report.html").read_text()
    assert "halo buffer 0.05" in said and all(run.name in said for run in study.runs)


def test_the_same_runs_give_the_same_figures(written, monkeypatch):
    """Whatever the user's matplotlibrc sets."""
    study, folder = written
    for name, value in {"text.usetex": True, "figure.facecolor": "red", "font.size": 30}.items():
        monkeypatch.setitem(matplotlib.rcParams, name, value)
    drawn = draw_figures(study)
    assert drawn.keys() == FIGURES.keys() - {"memory"}
    for name, images in drawn.items():
        assert matplotlib.image.imread(io.BytesIO(images["png"])).std() > 0.01, "not an empty sheet"
        assert images["pdf"].startswith(b"%PDF")
        for kind, image in images.items():
            assert image == (folder / f"{name}.{kind}").read_bytes(), (name, kind)


def test_no_figure_of_a_single_number(runs):
    assert draw_figures(build_study(runs("p2-a", "gcn-p2"))).keys() == {"learning-loss", "learning-metric", "parts"}


def test_a_backend_of_another_environment():
    """A notebook hands its MPLBACKEND on, at which the import of matplotlib fails; a backend that is there stays."""
    program = "from hpcgnn.report.style import drawing\nwith drawing() as sheet: sheet()\n"
    program += "import matplotlib, os; print(os.environ['MPLBACKEND'], matplotlib.rcParams['backend'])"
    for backend, shown in (("elsewhere", "elsewhere "), ("svg", "svg svg\n")):
        environment = os.environ | {"MPLBACKEND": backend}
        assert subprocess.check_output([sys.executable, "-c", program], env=environment, text=True).startswith(shown)


def test_the_page_stands_alone_and_tells_where_it_is_from(written):
    study, folder = written
    text = (folder / "report.html").read_text()
    sources = re.findall(r'(?:src|href|action|data)="([^"]*)"', text)
    assert len(sources) == text.count("<img") == len(list(folder.glob("*.png"))) == 5
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert not {"script", "link", "iframe", "object", "embed"} & set(re.findall(r"<(\w+)", text))
    assert "default-src 'none'" in text and "url(" not in text and "@import" not in text
    assert "no such directory" in text
    for run in study.runs:
        said = run.summary
        words = run.name, said["versions"]["torch"], said["hosts"][0], said["command"][-1]
        assert all(word in html.unescape(text) for word in words)


def test_everything_is_escaped(copied, tmp_path, undrawn):
    """Names of runs, labels, graphs, hosts and commands are others' words, and TeX, Markdown and HTML all have
    signs.
    """
    nasty = '<script>alert("1")</script>&|_%$#'
    paths = [copied("p1-a", "<b>1&|_%"), copied("p2-a", "plain")]
    for path in paths:
        change(path, "summary.json", lambda s: s["config"]["schedule"].update(schedule=nasty))
        change(path, "summary.json", lambda s: s.update(graph=nasty, hosts=[nasty], command=[nasty], metric=nasty))
    found, broken = read_runs([*paths, tmp_path / "<i>"])
    write_report(build_study(found, ["schedule"]), [(one.name, one.reason) for one in broken], tmp_path / "out")
    page = (tmp_path / "out/report.html").read_text()
    assert not {"script", "b", "i"} & set(re.findall(r"<(\w+)", page)) and html.escape(nasty) in page
    assert r"\_\%\$\#" in (tmp_path / "out/study.tex").read_text()


def test_an_earlier_report_is_replaced(runs, tmp_path, undrawn):
    out = tmp_path / "deep/report"
    out.mkdir(parents=True)
    for name in ("notes.txt", "memory.png", "runs.tex"):
        (out / name).write_text("earlier")
    with pytest.raises(ConfigError, match="memory.png exists"):  # whose it is nothing tells
        write_report(build_study(runs("p1-a")), [], out)
    (out / "report.html").write_text("Made by hpcgnn 0.1.0 on 2026-01-01")
    write_report(build_study(runs("p1-a")), [], out)
    assert not (out / "memory.png").exists() and (out / "runs.tex").read_text() != "earlier"
    assert (out / "notes.txt").read_text() == "earlier" and not list(out.glob(".*"))
