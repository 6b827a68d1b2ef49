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
from typing import Any, NamedTuple

import torch

from . import library
from .interface import ELEMENT_CODES, INTERFACE
from .library import Native

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
        arguments = INTERFACE.functions[function].arguments
        self._structure: type[ctypes.Structure] | None = None
        if "a" in arguments:
            self._structure = arguments["a"]._type_
            arguments = {name: kind for name, kind, *_ in self._structure._fields_}
        #: {argument of C: what it gets where nothing is given}
        self._nothing = {each: getattr(kind(), "value", None) for each, kind in arguments.items()}
        self._sizes = {name for each in tensors for _, found, _ in each.sizes.values() for name in found}
        self._known = self._sizes.union(table, arguments)
        self._start = self._nothing | self._values
        self._arguments = type("Arguments", (), dict.fromkeys(table) | self._start)
        self._checked: dict[tuple[Any, ...], dict[str, Any]] = {}

    def check(self, **given: Any) -> dict[str, Any]:
        """Raise ValueError if arguments have a wrong dtype, shape or layout, TypeError if there are others than the
        table's. Returns C's arguments, by name.
        """
        described: list[Any] = [*given]
        values: dict[str, Any] = {}
        for name, x in given.items():  # a comprehension would be a call of its own
            if isinstance(x, torch.Tensor):
                described += x.dtype, x.shape, x.stride(), x.is_cpu
                continue
            described.append(x if name in self._sizes else x is None)
            if x is not None:
                values[name] = x
        found = self._checked.get(key := tuple(described))
        if found is None:
            found = self._check(given, values)
            if len(self._checked) >= _REMEMBERED:
                self._checked.clear()
            self._checked[key] = found
        made = self._start | values | found
        for entry in self._entries:
            if (x := given.get(entry.name)) is not None:
                made[entry.field] = x.data_ptr()
        return made

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

    def filled(self, **given: Any) -> Any:
        """A ctypes pointer to the structure of the arguments, for a field of another one. The tensors must stay."""
        assert self._structure is not None, "it has a structure of arguments"
        return ctypes.pointer(self._structure(*map(self.check(**given).get, self._nothing)))

    def __call__(self, *positional: Any, compiled: bool = True, **given: Any) -> Any:
        """Check and compute. compiled: whether the compiled kernel may serve; else it is torch's. Returns the result of
        C, or of the body. Raises MemoryError and the errors of `check`.
        """
        given = dict(**dict(zip(self.table, positional, strict=False)), **given)
        made = self.check(**given)
        native, watch = (library.state.loaded or library.load()).native, library.state.watch
        native = native if compiled else None
        if watch is None:
            result = self._run(native, given, made)
        else:
            with watch(self.name, tuple(given.values())):
                result = self._run(native, given, made)
        for name in self._written:
            if (tensor := given.get(name)) is not None and not tensor.is_inference():
                torch.autograd.graph.increment_version(tensor)  # torch 2.4 takes no list
        return result

    def _run(self, native: Native | None, given: dict[str, Any], made: dict[str, Any]) -> Any:
        if native is None or self._partial is not None:
            arguments = self._arguments()
            vars(arguments).update(given)
        if native is None:
            assert self._body is not None, f"{self.name} is compiled alone"
            return self._body(arguments)
        function, common = getattr(native.library, self._function), (native.path, torch.get_num_threads())
        if self._partial is not None and (partial := self._partial(arguments)) is not None:
            made["partial"] = partial.data_ptr()
        if self._structure is not None:
            result = function(*common, ctypes.byref(self._structure(*map(made.get, self._nothing))))
        else:
            made |= zip(("path", "num_threads"), common, strict=True)
            result = function(*map(made.get, self._nothing))
        if self._memory and result:
            raise MemoryError(self._memory)
        return None if self._memory else result


def address_of(filled: Any) -> int:
    """The address of what `Kernel.filled` has made, for a field that is no pointer to its type."""
    return ctypes.addressof(filled.contents)


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
