"""The common part of policies that use some or old rows of other ranks: see ops/linear_aggregation.py."""

from hpcgnn.errors import ConfigError
from hpcgnn.ops.operators import Made, Operator
from hpcgnn.schedules.base import Stateless


class PushedHalo(Stateless):
    """Refuses operators that do not go with such rows. name: of the schedule, for its errors.

    A policy has _make(description): the operator of the present call.
    """

    name = ""

    def operator(self, description: Operator[Made]) -> Made:
        """See HaloPolicy."""
        if not description.pushes:
            raise ConfigError(
                f"--schedule {self.name} is not for models {description.models}: expected gcn, sage with "
                "--aggregator mean, gin, sgc or gat, or --schedule sar"
            )
        return self._make(description)

    def _make(self, description: Operator[Made]) -> Made:
        raise NotImplementedError
