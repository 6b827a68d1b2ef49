"""A graph file once more: datasets are copied as they are stored, chunk by chunk, without being decoded."""

from collections.abc import Callable
from typing import Any

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.hdf5 import read_attributes
from hpcgnn.graphfile.storage import GraphFile


def copy_datasets(file: GraphFile, copy: Any, but: Callable[[str], bool]) -> dict[str, Any]:
    """Copy all datasets of an open graph file into an open one, but for those whose names are left out. Returns the
    root attributes, which are not copied. Raises FormatError.
    """
    try:
        known = read_attributes(file.file)
        names: list[str] = []
        file.file.visit(names.append)  # links are not followed
        for name in names:
            if not but(name) and hasattr(file.file[name], "shape"):
                file.shape(name)  # refuses data in other files
                file.file.copy(file.file[name], copy, name=name)
    except (KeyError, OSError, RuntimeError) as error:  # writing raises nothing: see hdf5.py
        raise FormatError(f"{file.path} cannot be copied ({error}); the file is corrupted") from error
    return known
