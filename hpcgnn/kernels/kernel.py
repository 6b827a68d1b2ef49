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
dtypes (`x_type`, and `type` of the first argument with a dtype of its own), sizes and values. What is not given is NULL
or 0. Other entries are defaults of values, `...` of those without one.

Whatever reaches compiled code as a pointer has the dtype, shape and layout that it is read with. The checks look at a
tensor's description only. Ranges of indices are the one thing left out; `check_block` looks at those, once per block.
A function made of the table does all checks in one pass, since there are several for each tensor of each call.
"""

import ctypes
import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
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


class _Entry(NamedTuple):
    """A tensor of a table. `dtypes` are those of `like`'s dtype, or `free` ones. Sizes are expressions of names."""

    name: str
    field: str
    like: str | None
    dtypes: Any
    sizes: list[str]
    words: list[str]


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which elements of `dtype` are summed: float64 for itself, else float32."""
    return BELONGING["sum"][dtype][0]


def _entry(name: str, text: str) -> _Entry:
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise ValueError(f"{name}: expected dtype and shape of a tensor, got {text!r}")
    rule, shape = match["rule"], match["shape"][1:-1].split(",")
    dtypes = BELONGING[rule] if match["like"] else DTYPES.get(rule) or (getattr(torch, rule),)
    words = match["words"].split() + ["contiguous"] * (len(shape) == 1)
    return _Entry(name, match["field"] or name, match["like"], dtypes, [each.strip() for each in shape], words)


def _refuse(entry: _Entry, tensor: object, allowed: _Dtypes, known: dict[str, Any]) -> None:
    """Raise ValueError for what is wrong with `tensor`."""
    name = entry.name
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{name}: expected a torch tensor, got {type(tensor).__name__}")
    if not tensor.is_cpu:
        raise ValueError(f"{name}: expected a tensor on the CPU, got one on {tensor.device}")
    if tensor.dtype not in allowed:
        raise ValueError(f"{name}: expected {' or '.join(map(str, allowed))}, got {tensor.dtype}")
    wanted = []
    for text in entry.sizes:
        said = _NAME.sub(lambda size: size[0] if known[f"s_{size[0]}"] is None else str(known[f"s_{size[0]}"]), text)
        wanted.append(said if _NAME.search(said) else str(eval(said)))
    if [str(size) for size in tensor.shape] != wanted:
        comma = "," * (len(wanted) == 1)
        raise ValueError(f"{name}: expected shape ({', '.join(wanted)}{comma}), got {tuple(tensor.shape)}")
    layout = "a contiguous tensor" if "contiguous" in entry.words else "rows that are contiguous and do not overlap"
    raise ValueError(f"{name}: expected {layout}, got strides {tensor.stride()}; call .contiguous()")


def _of_size(text: str, length: str) -> list[str]:
    """Statements that compare `length` with a size, or take the size's last name from it where that is not known."""
    names, value = _NAME.findall(text), _NAME.sub(r"s_\g<0>", text)
    if names == [text]:
        return [f"if {value} is None: {value} = {length}", f"elif {value} != {length}: refuse()"]
    differs = f"{value} != {length}"
    if not names or "//" in text:
        return [f"if {differs}: refuse()"]
    last = f"s_{names[-1]}"
    of_none, of_one = (re.sub(rf"\b{last}\b", number, value) for number in "01")
    return [
        f"if {last} is None:",
        f"    {last} = ({length} - ({of_none})) // (({of_one}) - ({of_none}) or 1)",
        f"    if {last} < {int(len(names) > 1)} or {differs}: {last} = None; refuse()",
        f"elif {differs}: refuse()",
    ]


def _of_entry(number: int, entry: _Entry, wanted: Mapping[str, Any]) -> list[str]:
    """Statements that check a tensor, and take what C wants of it."""
    name, field, like, _, sizes, words = entry
    dtypes, lengths = f"allowed_{number}" + (f"[d_{like}]" if like else ""), [f"l_{k}" for k in range(len(sizes))]
    lines = [
        f"if not isinstance(x, Tensor) or not x.is_cpu or (d_{name} := x.dtype) not in {dtypes}: refuse()",
        "shape = x.shape",
        f"if len(shape) != {len(sizes)}: refuse()",
        f"{', '.join(lengths)}, = shape",
    ]
    for length, text in zip(lengths, sizes, strict=True):
        lines += _of_size(text, length)
    if "contiguous" in words:
        lines.append("if not x.is_contiguous(): refuse()")
    elif "strided" in words:
        lines.append(f"{field}_down, {field}_across = x.stride()")
    else:
        # An empty tensor may have any strides: .contiguous() leaves them, and nothing is read through them.
        lines.append(f"{field}_stride, across = x.stride()")
        lines.append(f"if l_0 and l_1 and (l_1 > 1 and across != 1 or l_0 > 1 and {field}_stride < l_1): refuse()")
    lines.append(f"p_{field} = x.data_ptr()")
    if f"{field}_type" in wanted:
        lines.append(f"{field}_type = codes[d_{name}]")
    lines = [line.replace("refuse()", f"refuse(entry_{number}, x, {dtypes}, locals())") for line in lines]
    if "optional" in words:
        lines = ["if x is not None:", *(f"    {line}" for line in lines)]
    return [f"x = get({name!r})", *lines]


class Kernel:
    """A kernel, to be called with the arguments of its `table`. Autograd does not know it: call it without recording
    gradients. What is written counts as a new version of the tensor, so that a stale saved tensor is an error.
    """

    def __init__(
        self,
        function: str,
        body: Callable[[Arguments], Any] | None,
        table: dict[str, Any],
        without: tuple[tuple[str, str, str, str], ...],
        memory: str,
        scratch: dict[str, Callable[[Arguments], torch.Tensor | None]],
    ) -> None:
        self.name, self._function, self._body = function.removeprefix("hg_"), function, body
        self.__doc__ = None if body is None else body.__doc__
        self.table, self._names, self._memory = table, list(table), memory
        self._blank = {each: None if isinstance(entry, str) else entry for each, entry in table.items()}
        arguments = INTERFACE.functions[function].arguments
        self._structure: type[ctypes.Structure] | None = None
        if "a" in arguments:
            self._structure = arguments["a"]._type_
            arguments = {name: kind for name, kind, *_ in self._structure._fields_}
        self._scratch = {list(arguments).index(name): make for name, make in scratch.items()}
        self._written = [name for name, each in table.items() if isinstance(each, str) and "written " in each]
        self._checked = _checker(self.name, table, without, arguments)

    def _refuse(self, given: dict[str, Any]) -> None:
        names = ", ".join(self._names)
        raise TypeError(f"{self.name}: expected each of {names} at most once, got {', '.join(given)}")

    def check(self, **given: Any) -> list[Any]:
        """Raise ValueError if arguments have a wrong dtype, shape or layout, TypeError if there are others than the
        table's. Returns what C gets.
        """
        if not given.keys() <= self._blank.keys():
            self._refuse(given)
        return self._checked(given.get, 0, 1)

    def filled(self, **given: Any) -> Any:
        """A ctypes pointer to the structure of the arguments, for a field of another one. The tensors must stay."""
        assert self._structure is not None, "it has a structure of arguments"
        return ctypes.pointer(self._structure(*self.check(**given)))

    def __call__(self, *positional: Any, compiled: bool = True, **given: Any) -> Any:
        """Check and compute. compiled: whether the compiled kernel may serve; else it is torch's. Returns the result of
        C, or of the body. Raises MemoryError and the errors of `check`.
        """
        if positional:
            count = len(given) + len(positional)
            given.update(zip(self._names, positional, strict=False))
            if len(given) != count:
                self._refuse(given)
        if not given.keys() <= self._blank.keys():
            self._refuse(given)
        native, watch = (library.state.loaded or library.load()).native, library.state.watch
        path, threads = 0 if native is None else native.path, torch.get_num_threads()
        values = self._checked(given.get, path, threads)
        if watch is not None:
            with watch(self.name, tuple(given.values())):
                result = self._run(native if compiled else None, given, values)
        else:
            result = self._run(native if compiled else None, given, values)
        versions = []
        for name in self._written:
            tensor = given.get(name)
            if tensor is not None and not tensor.is_inference():
                versions.append(tensor)
        torch.autograd.graph.increment_version(versions)
        return result

    def _run(self, native: Native | None, given: dict[str, Any], values: list[Any]) -> Any:
        if native is None:
            assert self._body is not None, f"{self.name} is compiled alone"
            return self._body(SimpleNamespace(**{**self._blank, **given}))
        kept = []
        for place, make in self._scratch.items():
            kept.append(make(SimpleNamespace(**{**self._blank, **given})))
            values[place] = None if kept[-1] is None else kept[-1].data_ptr()
        function = getattr(native.library, self._function)
        if self._structure is None:
            result = function(*values)
        else:
            result = function(native.path, torch.get_num_threads(), ctypes.byref(self._structure(*values)))
        if not self._memory:
            return result
        if result:
            raise MemoryError(self._memory)
        return None


def _checker(
    name: str, table: dict[str, Any], without: tuple[tuple[str, str, str, str], ...], wanted: dict[str, Any]
) -> Callable[..., list[Any]]:
    """A function of (`get` of the given arguments, path, num_threads), which checks them and returns what C wants."""
    tensors = [_entry(each, text) for each, text in table.items() if isinstance(text, str)]
    values = {each: value for each, value in table.items() if not isinstance(value, str)}
    entries: list[_Entry] = []
    while len(entries) < len(tensors):  # what another dtype belongs to is checked first
        before = {None, *(each.name for each in entries)}
        entries += [each for each in tensors if each.like in before and each.name not in before]
    of_sizes = {each for entry in entries for text in entry.sizes for each in _NAME.findall(text)}
    made = {f"{each.field}_{of}": "0" for each in entries for of in ("stride", "down", "across", "type")}
    made |= {f"s_{each}": "None" for each in sorted(of_sizes - set(values))}
    made |= {f"p_{each.field}": "None" for each in entries}
    root = next((each.name for each in entries if not each.like and len(each.dtypes) > 1), "")
    lines = [f"{each} = {value}" for each, value in made.items()]
    for each, default in values.items():
        lines.append(f"s_{each} = get({each!r}, default_{each})")
        if default is ...:
            lines.append(f"if s_{each} is ...: lacks({each!r})")
        if wanted.get(each) is ctypes.c_uint64:
            lines.append(f"if not isinstance(s_{each}, int) or not 0 <= s_{each} < 1 << 64: unfit({each!r}, s_{each})")
    for number, entry in enumerate(entries):
        lines += _of_entry(number, entry, wanted)
    for absent, one, other, blamed in without:
        lines.append(f"if get({absent!r}) is None and s_{one} is not None and s_{one} != s_{other}:")
        lines.append(f"    disagree({absent!r}, {other!r}, {blamed!r}, s_{one}, s_{other})")
    result = []
    for each, kind in wanted.items():
        number = issubclass(kind, ctypes._SimpleCData) and kind is not ctypes.c_void_p
        nothing = "0" if number else "None"
        if each in ("path", "num_threads"):
            result.append(each)
        elif each == "type" and root:
            result.append(f"codes[d_{root}]")
        elif f"p_{each}" in made:
            result.append(f"p_{each}")
        elif each in of_sizes or each in values:
            result.append(f"s_{each} or {nothing}")
        else:
            result.append(each if each in made else nothing)

    def lacks(value: str) -> None:
        raise TypeError(f"{name}: expected a value for {value}")

    def unfit(value: str, given: object) -> None:
        raise ValueError(f"{value}: expected an integer in [0, 2**64), as stream_key gives, got {given!r}")

    def disagree(absent: str, size: str, blamed: str, found: int, expected: int) -> None:
        raise ValueError(f"{blamed}: expected it for {expected} {size}, got {found}; or pass {absent}")

    space: dict[str, Any] = {"Tensor": torch.Tensor, "codes": ELEMENT_CODES, "refuse": _refuse}
    space |= {"lacks": lacks, "unfit": unfit, "disagree": disagree} | {
        f"default_{each}": value for each, value in values.items()
    }
    for number, entry in enumerate(entries):
        space |= {f"entry_{number}": entry, f"allowed_{number}": entry.dtypes}
    text = "\n    ".join(["def check(get, path, num_threads):", *lines, f"return [{', '.join(result)}]"])
    exec(compile(text, f"<arguments of {name}>", "exec"), space)
    return space["check"]


def kernel(
    function: str,
    table: dict[str, Any],
    without: tuple[tuple[str, str, str, str], ...] = (),
    memory: str = "",
    scratch: dict[str, Callable[[Arguments], torch.Tensor | None]] | None = None,
) -> Callable[[Callable[[Arguments], Any] | None], Kernel]:
    """A decorator that makes a Kernel of its body in torch; of None, where only the compiled library has it.

    Args:
        function: its C.
        table: see above.
        without: (argument, size, other size, argument that is blamed): without the first, both sizes are the same.
        memory: the message of MemoryError where C returns another number than 0; "": the number is a result.
        scratch: {argument of C: what makes this tensor of the arguments}, for C alone.
    """
    return lambda body: Kernel(function, body, table, without, memory, scratch or {})
