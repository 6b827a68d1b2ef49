"""Ids as they are written: 01 is not 1, and 1e2 is not 100, for predictions are joined by the ids of the source."""

import gzip
import re
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.readers.tables.tables import Layout, read_frame

if TYPE_CHECKING:
    import pandas as pd


def exact_ids(path: str | Path, shape: Layout, frame: "pd.DataFrame", column: int) -> np.ndarray:
    """A column of ids: integers where they are written as such, else the texts as they stand in the file, stripped.

    A parser makes one number of 01 and 1, or of 1e2 and 100, and no value of NA and null. Only where that can matter is
    the column read again.
    """
    values = frame.iloc[:, column].to_numpy()
    if values.dtype.kind in "iu" and not _file_has_odd_numbers(path):
        return values
    frame = read_frame(path, shape=shape, usecols=[column], dtype=str, keep_default_na=False)
    return frame.iloc[:, 0].str.strip().to_numpy().astype(str)


def check_spelling(path: str | Path, values: np.ndarray) -> None:
    """FormatError if an integer is written in two ways, such as the classes 01 and 1."""
    if values.dtype.kind != "U":
        return
    numbers: dict[Decimal, str] = {}
    for text in np.unique(values).tolist():
        if _WHOLE.fullmatch(text) is None:
            continue
        other = numbers.setdefault(Decimal(text), text)
        if other != text:
            raise FormatError(f"{path}: {other} and {text} are one number but two texts; write it in one way")


# 1.0 beside 1 is left: a column of numbers that other programs have written.
_WHOLE = re.compile(r"[+-]?[0-9]+(?:[eE][+-]?[0-9]+)?")
# Bytes as what they are in a number: a zero, another digit, what may stand before one (white space, comma, quote,
# minus), a plus.
_KINDS = bytes.maketrans(bytes(range(256)), b"," * ord("+") + b"+,,xx" + b"0" + b"1" * 9 + b"x" * (256 - 58))


def _file_has_odd_numbers(path: str | Path) -> bool:
    with (gzip.open if Path(path).suffix == ".gz" else open)(path, "rb") as file:
        end = b"\n"
        while block := file.read(1 << 22):
            if has_odd_numbers(end + block):
                return True
            end = block[-2:]
    return False


def has_odd_numbers(text: bytes) -> bool:
    """Whether a text may have a number that is not written as it is printed: 01, -01, +1. (Others are not known as
    integers.) The first byte is no part of a number.
    """
    kinds = text.translate(_KINDS)
    return b"+" in kinds or (b",0" in kinds and (b",00" in kinds or b",01" in kinds))
