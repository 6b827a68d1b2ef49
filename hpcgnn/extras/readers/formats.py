"""Registers the format of DGL's partitions."""

from hpcgnn.extras.readers import distdgl
from partition_tools.readers.sources import SOURCES

SOURCES.register(distdgl.NAME, distdgl)
