"""Numbers that no machine can hold, on the command line and in files: one line with the range."""

import pytest

from hpcgnn.__main__ import main
from hpcgnn.config import SECTIONS
from hpcgnn.plan.choices import registry_choices

HUGE = "99999999999999999999999"
registry_choices()  # adds the options that schedules declare
NUMBERS = {kind: [] for kind in (int, float)}
for _section, _kind in SECTIONS.items():
    for _name, _declared in _kind.__dataclass_fields__.items():
        if _declared.type in NUMBERS:
            NUMBERS[_declared.type].append((_section, _name))


def refused(capsys, *argv):
    assert main(["train", "--graph", "g.h5", *argv]) == 2
    error = capsys.readouterr().err
    assert error.startswith("hpcgnn: error: ") and error.count("\n") == 1
    return error


@pytest.mark.parametrize("section, name", NUMBERS[int])
def test_whole_numbers(capsys, tmp_path, section, name):
    flag = "--" + name.replace("_", "-")
    for wrong in (HUGE, "-" + HUGE):
        assert f"{flag}: expected at least" in refused(capsys, flag, wrong)
        (tmp_path / "c.toml").write_text(f"[{section}]\n{name} = {wrong}\n")
        assert f"{flag}: expected at least" in refused(capsys, "--config", str(tmp_path / "c.toml"))
    assert "expected a whole number, got '1e3'; write 1000" in refused(capsys, flag, "1e3")
    assert "expected a whole number, got 'inf'" in refused(capsys, flag, "inf")
    (tmp_path / "c.toml").write_text(f"[{section}]\n{name} = 1e3\n")
    assert f"{flag}: expected a whole number, got 1000.0" in refused(capsys, "--config", str(tmp_path / "c.toml"))


@pytest.mark.parametrize("section, name", NUMBERS[float])
def test_numbers(capsys, tmp_path, section, name):
    flag = "--" + name.replace("_", "-")
    for wrong in ("nan", "inf", "-inf", "1e39", "1e400", "-1"):
        error = refused(capsys, f"{flag}={wrong}")
        assert f"{flag}: expected at least" in error
        assert wrong != "inf" or " and " in error, "the upper end of the range"
        if wrong != "1e400":  # which is inf
            (tmp_path / "c.toml").write_text(f"[{section}]\n{name} = {wrong}\n")
            assert f"{flag}: expected at least" in refused(capsys, "--config", str(tmp_path / "c.toml"))
    (tmp_path / "c.toml").write_text(f"[{section}]\n{name} = 1{'0' * 400}\n")
    assert f"{flag}: expected at least" in refused(capsys, "--config", str(tmp_path / "c.toml"))
    assert "expected a number, got 'high'" in refused(capsys, flag, "high")


def test_seeds_have_64_bits(capsys):
    assert "at least -9223372036854775808 and at most 9223372036854775807" in refused(capsys, "--seed", HUGE)
