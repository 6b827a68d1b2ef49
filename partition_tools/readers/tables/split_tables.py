"""Tables of splits: words, numbers under a heading that means splits, or masks by name.

The name of a column test_mask gives its 1 a meaning; the name fold means neither training nor testing. Training on the
nodes with a 1 in either would train on test nodes.
"""

import re
from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.schema import SPLITS
from partition_tools.readers.tables.headings import SPLIT_OF
from partition_tools.readers.tables.row_tables import Table

SPLIT_WORDS = {word: SPLITS[split] for word, split in SPLIT_OF.items()}
SPLIT_WORDS |= {"": 0, "none": 0, "nan": 0, "0": 0, "1": 1, "2": 2, "3": 3}
_YES, _NO = ("1", "true", "yes"), ("0", "false", "no", "", "nan", "none")
# Headings above which numbers are splits: 1 train, 2 val, 3 test.
_OF_SPLITS = ("split", "splits", "set", "subset", "dataset", "partition")
_INDEX_FILE = re.compile(r"(?=.*(train|val|test))(?=.*(idx|index|indices|ids|nodes))", re.IGNORECASE)
SPLIT_TABLE = (
    "--splits takes one row per node: train, val, test or nothing. Lists of node ids make such a table with "
    "(echo id,split; sed s/$/,train/ train.txt; sed s/$/,val/ val.txt; sed s/$/,test/ test.txt) > splits.csv"
)


def mask_of(name: str) -> str | None:
    """The split whose members a column of this name marks: test_mask, is_test, val; None for other names."""
    words = re.split(r"[^a-z]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower())
    named = [SPLIT_OF[word] for word in words if word in SPLIT_OF]
    rest = {word for word in words if word and word not in SPLIT_OF}
    return named[0] if len(named) == 1 and rest <= {"mask", "is", "in", "set", "split", "node", "nodes"} else None


def split_codes(table: Table, path: Path) -> np.ndarray:
    """uint8 (n,): 0 for none, 1 train, 2 val, 3 test. Raises FormatError for columns that do not say it."""
    headings = table.names
    masks = [mask_of(name) for name in headings or ()]
    columns = [_words(column) for column in table.values.T]
    if masks and None not in masks and all(set(column) <= {*_YES, *_NO} for column in columns):
        return _of_masks([str(mask) for mask in masks], columns, table, path)
    if len(columns) != 1:
        raise FormatError(f"{path} must have one column of splits, got {len(columns)}; {SPLIT_TABLE}")
    return _of_words(columns[0], headings[0] if headings else None, table.ids is not None, path)


def _words(column: np.ndarray) -> list[str]:
    return [str(value).strip().lower().removesuffix(".0") for value in column]


def _of_masks(splits: list[str], columns: list[list[str]], table: Table, path: Path) -> np.ndarray:
    if len(set(splits)) < len(splits):
        raise FormatError(f"{path} has two columns for one split ({', '.join(splits)}); leave one of them out")
    codes = np.zeros(len(columns[0]), np.uint8)
    for split, column in zip(splits, columns, strict=True):
        members = np.array([word in _YES for word in column])
        if (codes[members] > 0).any():
            row = int(np.flatnonzero(members & (codes > 0))[0])
            who = table.whose(row)
            raise FormatError(f"{path}: {who} is in two splits ({split} and another); the splits must not overlap")
        codes[members] = SPLITS[split]
    return codes


def _of_words(words: list[str], heading: str | None, keyed: bool, path: Path) -> np.ndarray:
    known = set(words)
    unknown = sorted(known - set(SPLIT_WORDS))
    numbers = known - {"", "nan"}
    digits = bool(numbers) and all(word.isdigit() for word in numbers)
    if digits and not keyed and heading is None and (unknown or _INDEX_FILE.match(path.name)):
        raise FormatError(f"{path} looks like a list of node ids; {SPLIT_TABLE}")
    if heading is not None and (numbers & {"0", "1", "2", "3"} or unknown) and heading.lower() not in _OF_SPLITS:
        raise FormatError(
            f"{path}: what {', '.join(sorted(numbers)[:5])} in the column {heading} mean is not known; expected the "
            "words train, val, test or nothing, or columns called train_mask, val_mask and test_mask of 0 and 1"
        )
    if unknown:
        raise FormatError(f"{path} has the split {unknown[0]!r}; expected train, val, test or nothing")
    if len({word.isdigit() for word in numbers}) > 1:
        raise FormatError(
            f"{path} mixes words and numbers ({', '.join(sorted(numbers))}); write train, val, test or nothing"
        )
    if "0" in known and "3" not in known and known <= set("0123") | {"", "nan"}:
        raise FormatError(
            f"{path} has the splits {', '.join(sorted(numbers))}, which could be none, train, val or train, "
            "val, test; write words: train, val, test or nothing"
        )
    return np.array([SPLIT_WORDS[word] for word in words], np.uint8)
