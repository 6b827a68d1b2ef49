"""The choice of products: what of the processor is read, and that rounding stays within what it promises."""

import pytest
import torch

from hpcgnn.engine.matmul import bf16_instructions, set_matmul


@pytest.mark.parametrize(
    "text, found",
    [
        ("flags\t\t: fpu avx2 avx512f\n", []),
        (
            "model name\t: x\nflags\t\t: avx512_bf16 avx512f amx_bf16 amx_tile\n\nflags\t\t: fpu\n",
            ["avx512_bf16", "amx_bf16"],
        ),
        ("Features\t: fp asimd bf16\n", []),
    ],
)
def test_instructions_are_those_of_the_first_processor(tmp_path, text, found):
    (tmp_path / "cpuinfo").write_text(text)
    assert bf16_instructions(tmp_path / "cpuinfo") == found
    assert bf16_instructions(tmp_path / "missing") == []


def test_medium_products_round_factors_at_most():
    """Exactly the same numbers where torch finds no bf16 on this processor, else within two roundings to 8 bits."""
    a, b = torch.rand(300, 200), torch.rand(200, 100)
    exact = a @ b
    try:
        set_matmul("medium")
        rounded = a @ b
    finally:
        set_matmul("highest")
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, exact, rtol=2 * 2**-8, atol=0)
    assert torch.equal(a @ b, exact), "and highest brings it back"
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        assert torch.equal(rounded, exact)
