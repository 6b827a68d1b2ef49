"""Intel's oneCCL as a transport, for clusters of Intel's: `--comm oneccl` and `--comm ccl` (docs/cluster.md).

Its collective calls have no tags, so an exchange is one all-to-all of all ranks.
"""
