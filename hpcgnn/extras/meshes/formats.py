"""Registers the formats of meshes."""

from hpcgnn.extras.meshes import meshio_files, nekrs
from partition_tools.readers.sources import SOURCES

for _module in (nekrs, meshio_files):
    SOURCES.register(_module.NAME, _module)
