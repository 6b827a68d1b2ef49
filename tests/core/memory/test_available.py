"""The memory that the machine and its control groups leave."""

import pytest

from hpcgnn.memory import resident

GIB = 1 << 30


@pytest.mark.parametrize("old", (False, True))
def test_limits_of_groups(tmp_path, monkeypatch, old):
    """Limits of the own group and of all above it count, in both versions; a group without a limit has no number."""
    table, file = tmp_path / "cgroup", "memory.limit_in_bytes" if old else "memory.max"
    table.write_text("4:memory:/job/step\n3:cpu,cpuacct:/job\n" if old else "0::/job/step\n")
    for name, text in (("", str(9 << 40)), ("job", str(3 * GIB)), ("job/step", "max"), ("other", "1")):
        (tmp_path / "groups" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name / file).write_text(text + "\n")
    monkeypatch.setattr(resident, "_TABLE", table)
    monkeypatch.setattr(resident, "_OLD_GROUPS" if old else "_GROUPS", tmp_path / "groups")
    assert resident.group_limits() == [3 * GIB, 9 << 40]
    monkeypatch.setattr(resident, "_TABLE", tmp_path / "absent")
    assert resident.group_limits() == []
