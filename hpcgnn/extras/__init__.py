"""Packages outside of the core, each with its own options, code and registration. No room of the core imports them.

The module `hooks` of a package registers its entries in the registries of the core. A user's `--plugin FILE` uses the
same registries. The module `formats` registers formats of `partition_tools`.
"""
