"""Every kernel by its table: C against its lines of torch on each path, and refusals of forbidden arguments."""

import importlib
import pkgutil
import re

import pytest
import torch

import hpcgnn.kernels
from hpcgnn.kernels import column_moments, library, norm_gradient_sums
from hpcgnn.kernels.kernel import DTYPES, Kernel, _entry

NAMES = [each.name for each in pkgutil.iter_modules(hpcgnn.kernels.__path__) if each.name != "_native"]
MODULES = [importlib.import_module(f"hpcgnn.kernels.{name}") for name in NAMES]
MODULES += [importlib.import_module("hpcgnn.extras.meshes.chain")]
KERNELS = {id(each): each for module in MODULES for each in vars(module).values() if isinstance(each, Kernel)}
IDS = [f"{each.name}-{k}" for k, each in enumerate(KERNELS.values())]
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=IDS)
# Products of other types and of the baseline are torch's alone, and matchings are many (test_multiply.py,
# test_projection.py, test_chain.py, test_matching.py).
ELSEWHERE = ("multiply", "project", "project_backward", "chain_forward", "chain_backward", "match")
IN_TORCH = [each for each in KERNELS.values() if each._body is not None and each.name not in ELSEWHERE]
every_kernel_of_torch = pytest.mark.parametrize("kernel", IN_TORCH, ids=[each.name for each in IN_TORCH])
#: Of what is summed in another order, or by another exponential.
NEAR = {torch.float64: 1e-14, torch.float32: 4e-6, torch.bfloat16: 2.0**-6}
VALUES = {
    "key": 0x0123_4567_89AB_CDEF,
    "threshold": 1 << 31,
    "scale": 2.0,
    "slope": 0.2,
    "heads": 2,
    "of_gy": 2,
}
#: Of those without lines of torch.
VALUES_OF_RULES = {"tile": 16, "score": 1}
#: Kernels that round as torch does.
EXACT = {
    "encode",
    "decode",
    "narrow",
    "widen",
    "dropout_entries",
    "pack",
    "random_words",
    "gather_largest",
    "relu_gradient",
}
SPACED = 3  # columns beside a matrix


class Given:
    """Arguments of a kernel: all optional ones or none; of each size `count`, except the sizes of columns and edges.
    The last of many rows is a hub: of more edges than a thread takes at a time.
    """

    def __init__(self, kernel, dtype, width, count=40, optional=True, seed=0):
        self.kernel, self.count, self.draw = kernel, count, torch.Generator().manual_seed(seed)
        self.hub, self.before = count > 1000, 3 * (optional and count > 1)
        self.sizes = {
            "width": width,
            "head_width": width,
            "one": 1,
            **dict.fromkeys(("edges", "entries", "num_indices"), 5 * count),
            **dict.fromkeys(("own_width", "source_width"), 2 * width),
            "depth": 7,
            "streamed": width,
            "weight_columns": 3,
        }
        if "words" in kernel.table:
            self.sizes["columns"] = width
        entries = [_entry(name, text) for name, text in kernel.table.items() if isinstance(text, str)]
        self.entries = [each for each in entries if optional or "optional" not in each.words]
        self.dtypes, self.around, self.arguments = {}, {}, {}
        for entry in sorted(self.entries, key=lambda each: each.like is not None):
            allowed = entry.dtypes
            if entry.like:
                allowed = allowed[self.dtypes.get(entry.like, DTYPES["index"][0] if entry.like == "edge" else dtype)]
            self.dtypes[entry.name] = dtype if dtype in allowed else allowed[0]
        for entry in self.entries:
            self.arguments[entry.name] = self.tensor(entry)
        # Nothing is dropped without ids; kernels without lines of torch want their sizes told.
        told = (
            VALUES
            | (VALUES_OF_RULES | self.sizes if kernel._body is None else {})
            | {"scaled": optional, "accumulate": optional}
        )
        of_tensors = {name for name, entry in kernel.table.items() if isinstance(entry, str)}
        if "row_ids" in kernel.table and not optional:
            of_tensors |= {"key", "threshold", "scale"}
        self.arguments |= {name: value for name, value in told.items() if name in kernel._known - of_tensors}

    def length(self, size):
        known = dict.fromkeys(re.findall("[a-z_]+", size), self.count) | self.sizes
        return eval(size, known | {"heads": 2, "of_gy": 2, "times": 1})

    def tensor(self, entry):
        shape, dtype, name = [self.length(size) for size in entry.sizes], self.dtypes[entry.name], entry.name
        if name == "indptr":
            below = (self.sizes["edges"] - self.before) // (10 if self.hub else 1) + 1
            inner = torch.randint(below, (shape[0] - 2,) if shape[0] > 1 else (0,), generator=self.draw)
            # A slice of a longer one: edges keep their numbers.
            inner += self.before * (shape[0] > 1)
            ends = torch.tensor([self.before, self.sizes["edges"]])[: shape[0]]
            return torch.cat([inner, ends]).sort().values
        if name in ("rows", "outputs"):
            return torch.arange(shape[0], dtype=dtype)
        if name == "labels":
            return torch.randint(self.sizes["width"] or 1, shape, generator=self.draw)
        if not dtype.is_floating_point and dtype != torch.int8:
            return (torch.arange(shape[0]).mul(7) % max(1, self.count)).to(dtype).expand(shape[::-1]).t().contiguous()
        wide = torch.full(
            [*shape[:-1], shape[-1] + SPACED * (len(shape) == 2 and "contiguous" not in entry.words)], 7.0
        )
        wide = wide.to(dtype)
        inside = wide[..., : shape[-1]]
        inside.copy_((torch.randn(shape, generator=self.draw) * (30 if dtype == torch.int8 else 1)).to(dtype))
        if name in ("denominator", "factors", "steps"):
            inside.abs_()
        self.around[name] = wide
        return inside

    def run(self, compiled=True):
        """(the result, all tensors with the memory around them) of a call."""
        result = self.kernel(**self.arguments, compiled=compiled)
        return result, {name: self.around.get(name, self.arguments[name]) for name in self.dtypes}


def dtypes_of(kernel):
    roots = [_entry("", each) for each in kernel.table.values() if isinstance(each, str)]
    found = next(
        (each.dtypes for each in roots if not each.like and torch.float32 in each.dtypes and len(each.dtypes) > 1), ()
    )
    return found or [torch.float32]


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("kernels", [path for path in ("baseline", "avx2", "avx512")], indirect=True)
@every_kernel_of_torch
def test_compiled_kernels_do_what_torch_does(kernels, kernel, optional):
    """In every dtype and width, between NaN-free neighbours that stay; without rows and columns too."""
    for dtype in dtypes_of(kernel):
        if (kernel.name, optional) == ("pack", True) and dtype in (torch.float16, torch.int8):
            continue  # which are moved as they are, or widened
        for width, count in ((1, 40), (3, 40), (8, 40), (31, 40), (64, 40), (300, 40), (5, 0), (1, 1), (3, 2600)):
            sides = []
            for served in (library.load(), library.Loaded(None, reason="a test")):
                before = library.use(served)
                try:
                    sides.append(Given(kernel, dtype, width, count, optional).run())
                finally:
                    library.use(before)
            (result, found), (wanted, right) = sides
            assert result == wanted
            for name, tensor in found.items():
                near = (
                    0
                    if kernel.name in EXACT
                    else max(NEAR.get(tensor.dtype, 0), NEAR.get(dtype, 0))
                    * (
                        1
                        if tensor.numel() == 0 or not tensor.is_floating_point()
                        else float(right[name].double().abs().nan_to_num(posinf=0).max().clamp(min=1))
                    )
                )
                torch.testing.assert_close(
                    tensor,
                    right[name],
                    rtol=0,
                    atol=near,
                    equal_nan=True,
                    msg=lambda text: f"{kernel.name} {name} {dtype} {width}: {text}",
                )


@every_kernel_of_torch
def test_no_bit_depends_on_the_number_of_threads(kernel, set_threads):
    if library.load().native is None:
        pytest.skip("no compiled kernels")
    for dtype, width in ((torch.float32, 5), (torch.float32, 40), (torch.float32, 200), (torch.bfloat16, 64)):
        if dtype not in dtypes_of(kernel):
            continue
        found = []
        for threads in (1, 2, 3, 7):
            set_threads(threads)
            found.append(Given(kernel, dtype, width, 3000).run()[1])
        for name, tensor in found[0].items():
            assert all(torch.equal(tensor, other[name]) for other in found[1:]), (name, dtype, width)


@pytest.mark.parametrize("kernel", [column_moments, norm_gradient_sums], ids=lambda kernel: kernel.name)
def test_more_rows_than_the_shares_that_are_added_at_a_time(kernel):
    (_, found), (_, right) = (
        Given(kernel, torch.float32, 3, 512 * 256 + 5).run(compiled=each) for each in (True, False)
    )
    torch.testing.assert_close(found["sums"], right["sums"], rtol=1e-6, atol=0.1)


@every_kernel
def test_what_the_table_does_not_allow_is_refused(kernel):
    """Of each tensor: another object, device, dtype, number of dimensions, and layout; and sizes that disagree."""
    given = Given(kernel, torch.float32, 6)
    kernel.check(**given.arguments)
    shared = [name for entry in given.entries for size in entry.sizes for name in re.findall("[a-z_]+", size)]
    for entry in given.entries:
        tensor = given.arguments[entry.name]
        wrong = [tensor.numpy(), tensor.to("meta"), tensor.to(torch.complex64), tensor[None]]
        if tensor.dim() == 1 and len(tensor) > 1:
            wrong.append(tensor.repeat_interleave(2)[::2])
        elif "strided" not in entry.words and min(tensor.shape) > 1:
            wrong.append(tensor.t().contiguous().t())
        for other in wrong:
            with pytest.raises(ValueError, match=f"^{entry.name}: expected"):
                kernel.check(**given.arguments | {entry.name: other})
        names = re.findall("[a-z_]+", next(iter(entry.sizes)))
        if any(shared.count(name) > 1 or name in kernel.table for name in names):
            with pytest.raises(ValueError, match="expected"):
                kernel.check(**given.arguments | {entry.name: torch.cat([tensor, tensor[:1]])})
        if "optional" not in entry.words:
            with pytest.raises(ValueError, match=f"{entry.name}: expected .* got NoneType"):
                kernel.check(**given.arguments | {entry.name: None})
    with pytest.raises(TypeError, match="expected some of .* got .*other"):
        kernel.check(**given.arguments, other=1)


@every_kernel_of_torch
def test_what_was_right_once_is_known_by_its_whole_description(kernel):
    """Pointers and values are those of the call; nothing passes for what it is not."""
    arguments = Given(kernel, torch.float32, 6).arguments
    made = kernel.check(**arguments)
    assert kernel.check(**arguments) == made
    tensors = {name: each for name, each in arguments.items() if isinstance(each, torch.Tensor)}
    copies = {name: torch.empty_strided(x.shape, x.stride(), dtype=x.dtype) for name, x in tensors.items()}
    other, fields = kernel.check(**arguments | copies), {each.field for each in kernel._entries}
    for name, value in made.items():
        assert (other[name] == value) == (name not in fields or value is None), name
    for entry in kernel._entries:
        for wrong in (5, torch.zeros(1, 2, 3)):
            with pytest.raises(ValueError, match=f"{entry.name}: expected"):
                kernel.check(**arguments | {entry.name: wrong})


@every_kernel_of_torch
def test_a_stale_saved_tensor_is_an_error(kernel):
    """Compiled code writes behind autograd's back; without the version counter the gradient would be silently wrong."""
    given = Given(kernel, torch.float32, 6)
    before = {name: tensor._version for name, tensor in given.arguments.items() if isinstance(tensor, torch.Tensor)}
    given.run()
    for name, version in before.items():
        if re.match(r"(optional )?written ", kernel.table[name]):
            assert given.arguments[name]._version > version, name
    with torch.inference_mode():
        Given(kernel, torch.float32, 6).run()
