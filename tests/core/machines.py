"""A machine file for tests: made-up speeds, of every kind of operation that a model of the registry uses."""

from hpcgnn.estimate.machine.machine import Machine, Network, Rate, Reading

KERNELS = ("gather", "gather_largest", "gather_matching", "attend_forward", "attend_backward", "pack", "multiply")
KERNELS += ("project", "project_backward", "project_backward_weights", "product", "project_elu")
OTHERS = {
    "name": "made up",
    "source": "tests",
    "cores": 16,
    "memory": 64 << 30,
    "ranks": 4,
    "threads": 4,
    "libraries": 200 << 20,
    "shared": 80 << 20,
    "call": 2e-6,
    "torch_byte": 2e-10,
    "second_thread": 0.9,
}


def made_up(**changed):
    """A Machine of 4 ranks × 4 threads; changed: other values of some of its fields."""
    reading = Reading([16, 1024], [1 << 20, 128 << 20], [[1e-9, 3e-8], [4e-9, 9e-8]])
    rates = [Rate(name, "fp32", 64, 64, 2e-8, 1e-8) for name in KERNELS]
    values = OTHERS | {"network": Network(2e-6, 1e10, 0.5, 1e-10, 1e-6), "reading": reading, "rates": rates}
    return Machine(**{**values, **changed})
