"""The formats that can be imported, by name. Packages of `hpcgnn.extras` add to them.

A format is a module with NAME, OPTIONS (a dataclass of keys), matches(path) and read(path, options, scratch) ->
RawGraph, and perhaps companions(path), other files that hold the input. Arrays of edges and features that are larger
than a part of `scratch.memory` are mapped from the input, or from a file of `scratch`.
"""

from typing import Any

from hpcgnn.registry import Registry

#: The first format that a path looks like reads it.
SOURCES: Registry[Any] = Registry("format")
