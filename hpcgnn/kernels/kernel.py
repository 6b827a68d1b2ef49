"""One call for every kernel: its arguments are stated once, in a table, and checked and passed to C by that table.

    @kernel("hg_scale", {"out": "written type of x (num, width)", "x": "float (num, width)", "by": "type of x [num]"})
    def scale(a):
        '''out[i] = by[i] * x[i].'''
        a.out.copy_(a.by[:, None] * a.x)

The function is the kernel's meaning in torch, which runs where there is no compiled library. `hg_scale` is its C, and
`native/interface.h` has the names and the order of its arguments. A call takes the table's arguments, by place or by
name. The entry of a tensor has, in this order:

* `optional`, `written`, `contiguous` or `strided`, or several of them. Rows of matrices are contiguous and any distance
  apart, unless the entry says `contiguous` (the whole of them) or `strided` (anything).
* A dtype of torch, or several by a word (`DTYPES`). Or what belongs to the dtype of another argument (`BELONGING`).
* `as field`, where C has another name for it.
* The shape: `(rows, columns)` of a matrix, `[length]` of a vector. A name stands for the same size wherever it occurs,
  also in an expression. The last name of an expression is taken from the length where it is not known.

C gets pointers, and under their names strides (`x_stride`, or `x_down` and `x_across` of a strided matrix), codes of
dtypes (`x_type`, and `type` of the first argument with a dtype of its own), sizes and values. A value is a number of C
that no tensor determines; it is given by its name there. Arguments that are not given are NULL or 0. Other entries of a
table are defaults of values, in the order of a call by place.

Whatever reaches compiled code as a pointer has the dtype, shape and layout that it is read with. The checks look at a
tensor's description only, so arguments that are described like others before them are right, too. Ranges of indices are
the one thing left out; `check_block` looks at those, once per block.
"""

import ctypes
import re
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import increment_version

from . import library
from .interface import ELEMENT_CODES, INTERFACE, packer

#: Of a kernel's body: the arguments by their names.
Arguments = Any
_Dtypes = tuple[torch.dtype, ...]
F32, F64, BF16, F16, I8 = ELEMENT_CODES
FLOATS = (F32, F64, BF16)
#: {word: the dtypes that it stands for}. Rows that are only read may be narrower than float32, which has all their
#: numbers: they are widened in registers.
DTYPES: dict[str, _Dtypes] = {
    "float": (F32, F64),
    "number": FLOATS,
    "factor": (F32, BF16),
    "narrow": (*FLOATS, F16, I8),
    "index": (torch.int32, torch.int64),
}
#: {word: {dtype of another argument: the dtypes that belong to it}}. Sums are float64 for itself, else float32.
BELONGING: dict[str, dict[torch.dtype, _Dtypes]] = {
    "type": {dtype: (dtype,) for dtype in (*ELEMENT_CODES, *DTYPES["index"])},
    "sum": {F32: (F32,), F64: (F64,), BF16: (F32,), F16: (F32,), I8: (F32,)},
    "result": {F32: (F32,), F64: (F64,), BF16: (BF16, F32), F16: (F32,), I8: (F32,)},
    "packed": {F32: (F32, BF16), F64: (F64,), BF16: (BF16, F32), F16: (F16, F32), I8: (I8, F32)},
    "source": {F32: (F32, BF16, F16, I8), F64: (F64,), BF16: (BF16,)},
    "weights": {F32: (F32,), F64: (F64,), BF16: (BF16, F32)},
    "factors": {F32: (F32, BF16), F64: (F64,)},
}
_ENTRY = re.compile(
    r"(?P<words>(?:(?:optional|written|contiguous|strided) )*)(?P<rule>\w+)(?: of (?P<like>\w+))?"
    r"(?: as (?P<field>\w+))? (?P<shape>\(.+,.+\)|\[.+\])"
)


_NAME = re.compile(r"[a-z_]+")
#: How many descriptions of its arguments a kernel remembers.
_REMEMBERED = 64
#: A size that is a name, or a name and a number.
_SIZE = re.compile(r"([a-z_]+)(?: \+ (\d+))?")


class _Entry(NamedTuple):
    """A tensor of a table. dtypes: of `like`'s dtype, or free ones. sizes: {expression: (its function, its names, the
    number that is added to a single name, None: it is another expression)}.
    """

    name: str
    field: str
    like: str | None
    dtypes: Any
    sizes: dict[str, tuple[Callable[..., int], list[str], int | None]]
    words: list[str]


class _Call(NamedTuple):
    """The common part of calls whose arguments are described alike. So nothing of a call is looked up by its name.

    order: makes C's arguments of a list: pointers and values of a call, path, num_threads and partial, `constants`.
    """

    order: Callable[[list[Any]], tuple[Any, ...]]
    constants: list[Any]


class Filled(int):
    """The address of a structure of arguments, for a field of another one. It keeps the structure, but no tensors."""

    memory: Any


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which elements of `dtype` are summed: float64 for itself, else float32."""
    return BELONGING["sum"][dtype][0]


def _entry(name: str, text: str) -> _Entry:
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise ValueError(f"{name}: expected dtype and shape of a tensor, got {text!r}")
    rule, shape = match["rule"], [each.strip() for each in match["shape"][1:-1].split(",")]
    dtypes = BELONGING[rule] if match["like"] else DTYPES.get(rule) or (getattr(torch, rule),)
    words = match["words"].split() + ["contiguous"] * (len(shape) == 1)
    sizes = {}
    for each in shape:
        names, simple = list(dict.fromkeys(_NAME.findall(each))), _SIZE.fullmatch(each)
        sizes[each] = eval(f"lambda {', '.join(names)}: {each}"), names, simple and int(simple[2] or 0)
    return _Entry(name, match["field"] or name, match["like"], dtypes, sizes, words)


class Kernel:
    """A kernel, to be called with the arguments of its `table`. Autograd does not know it: call it without recording
    gradients. What is written counts as a new version of the tensor, so that a stale saved tensor is an error.
    """

    def __init__(
        self,
        function: str,
        body: Callable[[Arguments], Any] | None,
        table: dict[str, Any],
        without: tuple[tuple[str, str, str, str], ...] = (),
        memory: str = "",
        partial: Callable[[Arguments], torch.Tensor | None] | None = None,
        name: str = "",
    ) -> None:
        """Read the table.

        Args:
            function: its C.
            body: the same in torch.
            table: see above.
            without: (argument, size, other size, argument that is blamed): without the first, both sizes are the same.
            memory: the message of MemoryError where C returns another number than 0; "": the number is a result.
            partial: makes C's argument of this name, memory to work in, from the arguments.
            name: for who watches; "": that of its C.
        """
        self.name, self._function, self._body = name or function.removeprefix("hg_"), function, body
        self.__doc__ = None if body is None else body.__doc__
        self.table, self._without, self._memory, self._partial = table, without, memory, partial
        self._values = {each: value for each, value in table.items() if not isinstance(value, str)}
        tensors = [_entry(each, text) for each, text in table.items() if isinstance(text, str)]
        self._written = [each.name for each in tensors if "written" in each.words]
        self._entries: list[_Entry] = []
        while len(self._entries) < len(tensors):  # what another dtype belongs to is checked first
            before = {None, *(each.name for each in self._entries)}
            self._entries += [each for each in tensors if each.like in before and each.name not in before]
        self._typed = next((each.name for each in self._entries if not each.like and len(each.dtypes) > 1), "")
        _, arguments, structure = INTERFACE.functions[function]
        self._packed = packer(structure) if structure else None
        #: Of C's structure or function.
        self._names = structure or arguments
        self._sizes = {name for each in tensors for _, found, _ in each.sizes.values() for name in found}
        self._known = self._sizes.union(table, arguments, self._names)
        nothing = {name: kind().value for name, kind in self._names.items()}
        self._arguments = type("Arguments", (), dict.fromkeys(table) | nothing | self._values)
        self._calls: dict[tuple[Any, ...], _Call] = {}

    def check(self, **given: Any) -> dict[str, Any]:
        """Raise ValueError if arguments have a wrong dtype, shape or layout, TypeError if there are others than the
        table's. Returns C's arguments, by name.
        """
        call, own = self._described(given)
        return dict(zip(self._names, call.order([*own, 0, 0, 0, *call.constants]), strict=True))

    def _described(self, given: dict[str, Any]) -> tuple[_Call, list[Any]]:
        """Check the arguments. Returns the common part of calls like this one, and its own pointers and values."""
        described: list[Any] = [*given]
        own = []
        for name, x in given.items():  # a comprehension would be a call of its own
            if isinstance(x, torch.Tensor):
                described += x.dtype, x.shape, x.stride(), x.is_cpu
                own.append(x.data_ptr())
            elif x is None or name in self._sizes:
                described.append(x)
            else:
                described.append(...)
                own.append(x)
        call = self._calls.get(key := tuple(described))
        if call is None:
            call = self._call(given)
            if len(self._calls) >= _REMEMBERED:
                self._calls.clear()
            self._calls[key] = call
        return call, own

    def _call(self, given: dict[str, Any]) -> _Call:
        """The common part of calls with arguments like these, which are checked."""
        values = {name: x for name, x in given.items() if x is not None and not isinstance(x, torch.Tensor)}
        constants = {name: value for name, value in (self._values | self._check(given, values)).items() if value}
        fields = {each.name: each.field for each in self._entries}
        own = [
            name if name in values else fields.get(name)
            for name, x in given.items()
            if x is not None and (name not in values or name not in self._sizes)
        ]
        # The first of the same name counts.
        listed = reversed([*enumerate([*own, "path", "num_threads", "partial", *constants])])
        places = {name: place for place, name in listed}
        return _Call(itemgetter(*(places.get(name, -1) for name in self._names)), [*constants.values(), 0])

    def _check(self, given: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
        """What `check` says of arguments that are described like these: C's, but for pointers and other values."""
        if not given.keys() <= self._known:
            raise TypeError(f"{self.name}: expected some of {', '.join(sorted(self._known))}, got {', '.join(given)}")
        sizes = self._values | values
        made: dict[str, Any] = {}
        dtypes: dict[str, torch.dtype] = {}
        for name, field, like, belonging, shape, words in self._entries:
            x = given.get(name)
            if x is None and "optional" in words:
                continue
            allowed = belonging if like is None else belonging[dtypes[like]]
            if not isinstance(x, torch.Tensor) or not x.is_cpu or x.dtype not in allowed:
                got = f"{x.dtype} on {x.device}" if isinstance(x, torch.Tensor) else type(x).__name__
                raise ValueError(f"{name}: expected {' or '.join(map(str, allowed))} on the CPU, got {got}")
            dtypes[name] = dtype = x.dtype
            fits = x.dim() == len(shape)
            for (value, names, more), length in zip(shape.values(), x.shape if fits else (), strict=False):
                if more is not None:
                    fits = fits and length >= more and sizes.setdefault(names[0], length - more) == length - more
                    continue
                known = [*map(sizes.get, names)]
                if None in known:  # the last one, with which the size grows evenly
                    none, one = value(*known[:-1], 0), value(*known[:-1], 1)
                    sizes[names[-1]] = known[-1] = max(0, length - none) // max(1, one - none)
                fits = fits and value(*known) == length
            if not fits:
                raise ValueError(f"{name}: expected shape {_said(shape, sizes)}, got {tuple(x.shape)}")
            if "strided" in words:
                made[f"{field}_down"], made[f"{field}_across"] = x.stride()
            elif "contiguous" in words:
                fits, layout = x.is_contiguous(), "a contiguous tensor"
            else:
                # An empty tensor may have any strides: .contiguous() leaves them, and nothing is read through them.
                (rows, columns), (stride, across) = x.shape, x.stride()
                fits = not x.numel() or ((columns == 1 or across == 1) and (rows == 1 or stride >= columns))
                made[f"{field}_stride"], layout = stride, "rows that are contiguous and do not overlap"
            if not fits:
                raise ValueError(f"{name}: expected {layout}, got strides {x.stride()}; call .contiguous()")
            made[f"{field}_type"] = ELEMENT_CODES.get(dtype)
            if name == self._typed:
                made["type"] = ELEMENT_CODES[dtype]
        for absent, own, other, blamed in self._without:
            if given.get(absent) is None and sizes.get(own, sizes[other]) != sizes[other]:
                raise ValueError(
                    f"{blamed}: expected it for {sizes[other]} {other}, got {sizes[own]}; or pass {absent}"
                )
        return {name: size for name, size in sizes.items() if name in self._sizes} | made

    def filled(self, **given: Any) -> Filled:
        """The structure of these arguments. The tensors must stay."""
        assert self._packed is not None, "it has a structure of arguments"
        memory = ctypes.create_string_buffer(self._packed.pack(*self.check(**given).values()))
        result = Filled(ctypes.addressof(memory))
        result.memory = memory
        return result

    def __call__(self, *positional: Any, compiled: bool = True, **given: Any) -> Any:
        """Check and compute. compiled: whether the compiled kernel may serve; else it is torch's. Returns the result of
        C, or of the body. Raises MemoryError and the errors of `check`.
        """
        if positional:
            given = dict(**dict(zip(self.table, positional, strict=False)), **given)
        watch = library.state.watch
        if watch is None:
            result = self._run(given, compiled)
        else:
            with watch(self.name, tuple(given.values())):
                result = self._run(given, compiled)
        written = [x for name in self._written if (x := given.get(name)) is not None]
        try:
            increment_version(written)
        except RuntimeError:
            increment_version([x for x in written if not x.is_inference()])  # tensors of inference have no version
        return result

    def _run(self, given: dict[str, Any], compiled: bool) -> Any:
        call, own = self._described(given)
        native, memory = (library.state.loaded or library.load()).native, None
        if native is None or not compiled:
            assert self._body is not None, f"{self.name} is compiled alone"
            return self._body(self._named(given))
        if self._partial is not None:
            memory = self._partial(self._named(given))
        common = native.path, torch.get_num_threads()
        ordered = call.order([*own, *common, 0 if memory is None else memory.data_ptr(), *call.constants])
        function = getattr(native.library, self._function)
        result = function(*(ordered if self._packed is None else (*common, self._packed.pack(*ordered))))
        if self._memory and result:
            raise MemoryError(self._memory)
        return None if self._memory else result

    def _named(self, given: dict[str, Any]) -> Arguments:
        """The arguments of `_body`."""
        arguments = self._arguments()
        vars(arguments).update(given)
        return arguments


def _said(shape: Iterable[str], sizes: dict[str, Any]) -> str:
    """A shape with the sizes that are known."""
    wanted = []
    for text in shape:
        said = _NAME.sub(lambda name: str(sizes.get(name[0], name[0])), text)
        wanted.append(said if _NAME.search(said) else str(eval(said)))
    return f"({', '.join(wanted)}{',' * (len(wanted) == 1)})"


def kernel(function: str, table: dict[str, Any], **more: Any) -> Callable[[Callable[[Arguments], Any] | None], Kernel]:
    """A decorator that makes a Kernel of its body in torch; of None, where only the compiled library has it."""
    return lambda body: Kernel(function, body, table, **more)
