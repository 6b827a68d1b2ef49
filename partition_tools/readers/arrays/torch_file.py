"""Files of `torch.save`, read without running code of theirs.

Such a file is a pickle, and loading a pickle can run code. torch's reader of weights runs none. It knows tensors and
plain containers, and makes objects of named classes alone.
"""

import importlib
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.errors import FormatError

#: What pickled arrays of numpy are made of, by the names that versions of numpy have for it: an empty array, which then
#: takes a shape, a type and bytes.
NUMPY: dict[str, Any] = {
    "numpy.ndarray": np.ndarray,
    "numpy.dtype": np.dtype,
    **{f"numpy.{core}.multiarray._reconstruct": np.empty(0).__reduce__()[0] for core in ("core", "_core")},
    **{f"numpy.dtypes.{name}": getattr(np.dtypes, name) for name in np.dtypes.__all__},
}


def load_torch_file(path: Path, known: Mapping[str, Any], remedy: str = "") -> Any:
    """The content of a file. Raises FormatError; nothing of the file has run then.

    known: {full name in the file: its replacement}. remedy: advice for a file with anything else.
    """
    try:
        torch: Any = importlib.import_module("torch")  # for these files alone: all else of partition_tools does without
    except ImportError as error:
        raise FormatError(f"reading {path} needs torch, which is not installed") from error
    before = torch.serialization.get_safe_globals()  # PyG, where it is loaded, has put its own classes there
    try:
        torch.serialization.clear_safe_globals()
        with torch.serialization.safe_globals([(kind, name) for name, kind in known.items()]):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        first = " ".join(str(error).split())
        what = first[first.find("GLOBAL ") :].split(" was not")[0] if "GLOBAL " in first else first[:120]
        raise FormatError(
            f"{path} holds what cannot be read without running code ({what}), and none was run{remedy}"
        ) from error
    except Exception as error:  # a damaged pickle makes the reader fail anywhere
        raise FormatError(
            f"{path} is not a readable file of torch.save: {' '.join(str(error).split())[:200]}"
        ) from error
    finally:
        torch.serialization.add_safe_globals(before)
