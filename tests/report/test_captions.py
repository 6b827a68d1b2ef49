"""Every figure says how it is read: in the page, beside the images, and in the images themselves."""

import re
import xml.etree.ElementTree as ElementTree

import pytest
from PIL import Image

from hpcgnn.report.captions import CAPTIONS, caption
from hpcgnn.report.figures import FIGURES
from hpcgnn.report.study import build_study

DESCRIPTION = "{http://purl.org/dc/elements/1.1/}description"


def test_every_figure_has_one(runs):
    assert CAPTIONS.keys() == {figure.name for figure in FIGURES}
    for names in (("p1-a", "p2-a"), ("p1-a", "weak-p2"), ("p2-a",)):
        study = build_study(runs(*names))
        for name in CAPTIONS:
            text = caption(name, study)
            assert len(text) > 80 and "{" not in text and "  " not in text
            if name not in ("imbalance", "breakdown", "memory_account"):
                assert "Across:" in text and "Up:" in text and "better" in text


@pytest.mark.parametrize(
    "names, words", [(("p1-a", "p2-a"), "as many times less"), (("p1-a", "weak-p2"), "the same on any number of ranks")]
)
def test_the_ideal_is_that_of_the_study(runs, names, words):
    assert words in caption("epoch_time", build_study(runs(*names)))
    assert "dotted" not in caption("epoch_time", build_study(runs("p2-a"))), "nothing is ideal on one number of ranks"


def test_they_are_where_the_figures_are(written):
    study, folder = written
    page, beside = (folder / "report.html").read_text(), (folder / "captions.md").read_text()
    alternatives = re.findall(r'<img alt="([^"]*)"', page)
    images = sorted(folder.glob("*.png"))
    assert len(alternatives) == len(images) == beside.count("](") > 5
    for path in images:
        text = caption(path.stem, study).replace("&", "&amp;")
        assert any(text in words for words in alternatives)
        assert f"</strong> {text}" in page and f"({path.name})" in beside
        assert caption(path.stem, study) in Image.open(path).text["Description"]
        root = ElementTree.parse(path.with_suffix(".svg")).getroot()
        assert caption(path.stem, study) in root.find(f".//{DESCRIPTION}").text
