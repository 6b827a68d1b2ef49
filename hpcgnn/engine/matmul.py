"""How fp32 matrices are multiplied, and whether this processor's instructions make a difference.

With `--matmul medium`, factors are rounded to bf16 on their way into the multiplier, and sums use fp32. Stored numbers
stay fp32. On processors with bf16 dot products (AVX512-BF16, AMX) this is faster: AMD's use kernels of our own, others
oneDNN. Elsewhere torch's check of the processor leaves products as they are. The option then changes neither speed nor
numbers.

On Zen 4, which has AVX512-BF16 and no AMX, oneDNN of torch 2.13 rounds nothing. There, products in layers made of
torch's operations stay fp32. Each rank checks its own processor, for nodes differ.
"""

from pathlib import Path

import torch

#: The names of the instructions in /proc/cpuinfo.
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
