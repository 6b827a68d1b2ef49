"""A plugin of pytest: a test that asks for `comm` runs as in-process ranks (in_process.py), at 1 to 4 of them.

Each rank runs the test's function, and the functions of fixtures that ask for `comm`, in a thread of its own. The value
of such a fixture is each rank's own (PerRank). Other fixtures, such as `monkeypatch`, are common to all.
"""

import functools
import inspect

import pytest

from .in_process import World


class PerRank(list):
    """A value of each rank."""


def _mine(arguments, rank):
    return {name: value[rank] if isinstance(value, PerRank) else value for name, value in arguments.items()}


def on_ranks(world, function, arguments):
    """The results of a function that all ranks run, by rank."""
    return PerRank(world.run(lambda rank: function(**_mine(arguments, rank))))


def _by_ranks(world_of, function):
    """A fixture's function that all ranks run, if an argument is PerRank."""
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def each(**arguments):
            world = world_of(arguments)
            if world is None:
                yield from function(**arguments)
                return
            generators = [function(**_mine(arguments, rank)) for rank in range(world.size)]
            yield PerRank(world.run(lambda rank: next(generators[rank])))
            world.run(lambda rank: next(generators[rank], None))

    else:

        @functools.wraps(function)
        def each(**arguments):
            world = world_of(arguments)
            return function(**arguments) if world is None else on_ranks(world, function, arguments)

    return each


class ThreadRanks:
    def __init__(self):
        self._world = None

    def pytest_generate_tests(self, metafunc):
        if "comm" in metafunc.fixturenames:
            mark = metafunc.definition.get_closest_marker("ranks")
            numbers = mark.args if mark else (1, 2, 3, 4)
            metafunc.parametrize("comm", numbers, indirect=True, scope="session", ids=lambda number: f"{number}ranks")

    def number(self, item):
        """The number of ranks of a test."""
        return item.callspec.params["comm"]

    def communicators(self, size):
        """A PerRank of communicators. They are new for each number of ranks."""
        self._world = World(size)
        return PerRank(self._world.communicators)

    def _world_of(self, arguments):
        return self._world if any(isinstance(value, PerRank) for value in arguments.values()) else None

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        function = fixturedef.func
        fixturedef.func = _by_ranks(self._world_of, function)
        try:
            return (yield)
        finally:
            fixturedef.func = function

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem):
        arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        world = self._world_of(arguments)
        if world is None:
            return None
        on_ranks(world, pyfuncitem.obj, arguments)
        return True
