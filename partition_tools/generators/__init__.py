"""The models that graphs can be drawn from. A model is a module with NAME and generate(spec, scratch)."""

from partition_tools.generators import planted, rmat

GENERATORS = {module.NAME: module for module in (planted, rmat)}
