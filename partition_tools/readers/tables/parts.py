"""A table in parts, as Spark and others write one: a folder of part-00000.csv, part-00001.csv, …"""

import gzip
import shutil
from collections.abc import Sequence
from pathlib import Path

from hpcgnn.errors import FormatError
from partition_tools.workspace.scratch import Scratch


def parts_of(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """The files part* of a folder in the order of their names; none if there are others, or it is no folder."""
    if not folder.is_dir():
        return []
    parts = sorted(each for each in folder.iterdir() if each.name.startswith("part") and each.is_file())
    return parts if all(each.name.removesuffix(".gz").endswith(tuple(suffixes)) for each in parts) else []


def one_text(parts: Sequence[Path], heading: bool, scratch: Scratch) -> Path:
    """A file of `scratch` with all parts of a text. heading: each part begins with one, which stays once."""
    whole, first = scratch.directory / f"parts{parts[0].name.removesuffix('.gz')[-4:]}", b""
    scratch.reporter.stage(f"joining {len(parts)} parts of {parts[0].parent}")
    try:
        with open(whole, "wb") as out:
            for number, part in enumerate(parts):
                with gzip.open(part) if part.suffix == ".gz" else open(part, "rb") as file:
                    line = file.readline().rstrip()
                    first = line if number == 0 else first
                    if heading and line not in (first, b""):
                        raise FormatError(f"{part} begins with {line!r}; expected the heading of {parts[0]}, {first!r}")
                    if number == 0 or not heading:
                        out.write(line + b"\n")
                    shutil.copyfileobj(file, out)
                    out.write(b"\n")
    except (OSError, EOFError) as error:
        raise FormatError(
            f"cannot join the parts of {parts[0].parent}: {error}; --scratch names another disk"
        ) from error
    return whole
