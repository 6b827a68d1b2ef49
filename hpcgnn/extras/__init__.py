"""What few runs need, outside of the core: each folder has its options, code and registration, and no other room
imports it.

`hpcgnn.extras.NAME.hooks` registers what the package NAME offers in the registries of the core, as a user's file does
that is given as `--plugin FILE`; `hpcgnn.extras.NAME.formats` registers formats of `partition_tools`. Without the
folder the core is the same program with less on offer.
"""
