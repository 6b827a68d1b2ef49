"""A stand-in for the package of this name, in tests only: registers a backend `ccl` with ccl's operations on CPUs.

These are collective calls, here gloo's, and neither send nor receive.
"""

import torch.distributed as dist


class _Collective(dist.ProcessGroupGloo):
    def send(self, *_):
        raise RuntimeError("ProcessGroupCCL::send is not supported on CPU")

    recv = send


def _make(store, rank, size, timeout):
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    options._timeout = timeout
    return _Collective(store, rank, size, options)


dist.Backend.register_backend("ccl", _make, devices=["cpu"])
