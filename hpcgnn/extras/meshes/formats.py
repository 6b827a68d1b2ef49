"""Registers the formats of meshes."""

from hpcgnn.extras.meshes import nekrs
from partition_tools.readers.sources import SOURCES

SOURCES.register(nekrs.NAME, nekrs)
