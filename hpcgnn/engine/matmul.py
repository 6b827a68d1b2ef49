"""How matrices of fp32 numbers are multiplied, and whether this processor has the instructions that make it matter.

With `--matmul medium` the factors of a product are rounded to bf16 on their way into the multiplier and sums are of
fp32; what is stored stays fp32. On processors with bf16 dot products (AVX512-BF16, AMX) that is faster: by kernels of
our own on AMD's, else by oneDNN. On others products stay as they are: torch's check of the processor decides, so the
option is then without effect, in speed and in numbers. (On Zen 4, which has AVX512-BF16 and no AMX, oneDNN of torch
2.13 rounds nothing: products that are not our own, in layers made of torch's operations, stay fp32 there.) Each rank
asks its own processor, for nodes differ.
"""

from pathlib import Path

import torch

#: What /proc/cpuinfo calls the instructions.
BF16_FLAGS = ("avx512_bf16", "amx_bf16")


def set_matmul(precision: str) -> None:
    """Multiply fp32 matrices as `highest` (fp32) or `medium` (bf16 factors, fp32 sums) from now on, in this process."""
    torch.set_float32_matmul_precision(precision)


def bf16_instructions(path: str | Path = "/proc/cpuinfo") -> list[str]:
    """Which of BF16_FLAGS this processor has, as a list; empty where the system does not say."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            flags = next((line.partition(":")[2].split() for line in file if line.startswith("flags")), [])
    except OSError:
        return []
    return [name for name in BF16_FLAGS if name in flags]
