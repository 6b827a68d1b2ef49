"""The kernel library compiled for aarch64 and run by qemu-user, behind the interface of the installed one.

`Library` has the functions of a `ctypes.CDLL` of the kernels. It sends a call's arguments, as `native/interface.h`
declares them, to a process of `emulated.c`, which works on this process's memory. So every test of the kernels can run
on it: `pytest -p emulated`, for `test_aarch64.py`.
"""

import ast
import ctypes
import os
import shutil
import struct
import subprocess
import weakref
from pathlib import Path

import pytest
from sanitized import linked

from hpcgnn.kernels import library
from hpcgnn.kernels.interface import INTERFACE, packer
from hpcgnn.kernels.library import Native
from hpcgnn.kernels.sources import NATIVE, contraction, fingerprint

FOLDER = "HPCGNN_EMULATED_FOLDER"
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
PACKAGES = "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
#: Where Debian's cross compiler has the libraries of the other architecture.
ROOT = "/usr/aarch64-linux-gnu"
SETUP = Path(__file__).parents[2] / "setup.py"
DRIVER = Path(__file__).with_name("emulated.c")
# As in emulated.c.
ADDRESS_BIT = 1 << 46
INTEGERS, REALS = 28, 8
REQUEST, REPLY = struct.Struct(f"<64sq{INTEGERS}Q{REALS}d"), struct.Struct("<qd64s")
WHOLE, REAL, TEXT = range(3)


def missing():
    """Why nothing can be emulated here; None: it can be."""
    for program in (COMPILER, EMULATOR):
        if shutil.which(program) is None:
            return f"there is no {program} (Debian: apt-get install {PACKAGES})"
    try:
        os.close(os.open("/proc/self/mem", os.O_RDWR))
    except OSError as error:
        return f"a process may not share its memory: {error}"
    return None


def flags(keyword):
    """The flags that setup.py gives to the compiler, or to the linker."""
    tree = ast.parse(SETUP.read_text(encoding="utf-8"))
    (value,) = (node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == keyword)
    return ast.literal_eval(value)


def build(folder, more=()):
    """Compile the library and the program that calls it into `folder`, a source on each core. Returns the library's
    path. more: flags behind the flags of setup.py.
    """
    sources = sorted(NATIVE.glob("*.c"), key=lambda file: file.stem != "path_baseline")  # the largest first
    compile_flags = [*flags("extra_compile_args"), *contraction([COMPILER]), "-fPIC", *more]
    command = [COMPILER, *compile_flags, f'-DHG_SOURCES="{fingerprint()}"']
    result = linked(command, sources, folder / "aarch64.so", [COMPILER, "-shared", *flags("extra_link_args")])
    driver = [COMPILER, "-std=gnu11", "-O2", "-Wall", "-Wextra", DRIVER, "-o", folder / "emulated"]
    subprocess.run([*driver, "-rdynamic", "-ldl", "-pthread"], check=True)
    return result


class Library:
    """The functions of a library in an emulated process, which ends with this object."""

    def __init__(self, file):
        self._memory = os.open("/proc/self/mem", os.O_RDWR)
        # Many threads share few cores: one that waits must sleep.
        environment = os.environ | {"OMP_WAIT_POLICY": "passive", "OMP_DYNAMIC": "false"}
        self._process = subprocess.Popen(
            [EMULATOR, "-L", ROOT, file.with_name("emulated"), file, str(self._memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[self._memory],
            env=environment,
        )
        weakref.finalize(self, self._end, self._process, self._memory)
        self.calls = 0

    @staticmethod
    def _end(process, memory):
        os.close(memory)
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()

    def __getattr__(self, name):
        if name not in INTERFACE.functions:
            raise AttributeError(name)
        function = _Function(self, name)
        setattr(self, name, function)
        return function

    def call(self, name, result, integers, reals):
        """The result of a function, which is WHOLE, REAL or TEXT."""
        integers, reals = (
            values + [0] * (size - len(values)) for values, size in ((integers, INTEGERS), (reals, REALS))
        )
        try:
            self._process.stdin.write(REQUEST.pack(name.encode(), result, *integers, *reals))
            self._process.stdin.flush()
            reply = self._process.stdout.read(REPLY.size)
        except BrokenPipeError:
            reply = b""
        if len(reply) < REPLY.size:
            said = self._process.stderr.read().decode(errors="replace").strip()
            raise RuntimeError(f"{name}: the emulated process ended with {self._process.wait()}: {said}")
        self.calls += 1
        whole, real, text = REPLY.unpack(reply)
        return (whole, real, text.rstrip(b"\0"))[result]


class _Function:
    """A function of the library, with the attributes that ctypes has for it."""

    def __init__(self, owner, name):
        self._call, self._name = weakref.WeakMethod(owner.call), name
        self.restype, arguments, self._structure = INTERFACE.functions[name]
        self.argtypes = [*arguments.values()]

    def __call__(self, *given):
        assert len(given) == len(self.argtypes), f"{self._name}: {len(given)} arguments for {len(self.argtypes)}"
        integers, reals, alive = [], [], []
        for kind, value in zip(self.argtypes, given):
            if kind is ctypes.c_double:
                reals.append(float(value))
            elif kind in (ctypes.c_void_p, ctypes.c_char_p):
                integers.append(_there(_address(value, self._structure, alive)))
            else:
                integers.append(kind(value).value % (1 << 64))
        result = {ctypes.c_double: REAL, ctypes.c_char_p: TEXT}.get(self.restype, WHOLE)
        found = self._call()(self._name, result, integers, reals)
        if self.restype is None:
            return None
        # Of a shorter integer only its own bytes are given.
        return self.restype(found).value if result == WHOLE else found


def _there(address):
    """An address of this process as the emulated one knows it; 0 stays 0."""
    return address and address ^ ADDRESS_BIT


def _address(value, structure, alive):
    """Where an argument begins. Of a structure it is a copy whose pointers the emulated process knows."""
    if not isinstance(value, bytes):
        return value or 0
    if structure:
        layout = packer(structure)
        fields = zip(structure.values(), layout.unpack(value))
        value = layout.pack(*(_there(each) if kind is ctypes.c_void_p else each for kind, each in fields))
    alive.append(ctypes.create_string_buffer(value))
    return ctypes.addressof(alive[-1])


def loaded(file):
    """The kernels of this library, as `library.choose` would have loaded them."""
    emulated = Library(file)
    if difference := library._difference(emulated, check_sources=True):
        raise library.LibraryError(f"{file} {difference}")
    return library.Loaded(Native(emulated, "baseline"), str(file), "baseline")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests():
    """For pytest -p emulated: this library serves, before conftest.py asks which does. At the end a line reports its
    number of calls.
    """
    library.use(loaded(Path(os.environ[FOLDER]) / "aarch64.so"))


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"{library.load().native.library.calls} calls under {EMULATOR}")
