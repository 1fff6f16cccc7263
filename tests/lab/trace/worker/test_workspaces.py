"""Kernels' own buffers against hand arithmetic on their source, and against the headers that torch brings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fullstep.hardware import find_card
from fullstep.lab.trace.worker.compat.capabilities import capability, say_capability
from fullstep.lab.trace.worker.reductions import column_sum_buffers
from fullstep.lab.trace.worker.workspaces import Workspaces, _efficient_tile

pytestmark = pytest.mark.real_classes
CUTLASS = Path(torch.__file__).parent / "include/ATen/native/transformers/cuda/mem_eff_attention/kernels/cutlassB.h"
FLASH = torch.ops.aten._scaled_dot_product_flash_attention_backward.default
EFFICIENT = torch.ops.aten._scaled_dot_product_efficient_attention_backward.default


@pytest.fixture(autouse=True)
def card_of_one_test() -> Iterator[None]:
    before = capability()
    yield
    say_capability(before)


def made(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """[rows, heads, tokens, width] as attention has it: lying by [rows, tokens, heads, width]."""
    rows, heads, tokens, width = shape
    return torch.empty(rows, tokens, heads, width, dtype=dtype, device="meta").transpose(1, 2)


def test_column_sums_of_a_norm() -> None:
    """4,096 tokens of width 4,096: threads take 4 columns each, 32 of them side by side and 4 down; 1,024 values per thread.

    132 processors hold 2,112 such blocks of 128 threads; 32 stand side by side, so up to 66 share a column, but then each thread would
    have under 16 values: 1,024 / 16 = 64 blocks. Partial sums: 4 bytes x 4,096 columns x 64 blocks x 32 threads x 4 columns.
    """
    assert column_sum_buffers(4096, 4096, 2, 132, 2048) == [4 * 4096 * 64 * 32 * 4, 4 * 32]


def test_column_sums_of_an_odd_width() -> None:
    """1,001 columns: one column per thread, 32 side by side and 16 down; 4,096 values each; 132 x 4 blocks of 512 threads over 32: 17."""
    assert column_sum_buffers(65536, 1001, 4, 132, 2048) == [4 * 1001 * 17 * 32, 4 * 32]


def test_a_short_sum_needs_no_buffer() -> None:
    """Under 256 values per thread (4 threads down a column) one block does it; so it does where columns fill the card."""
    assert column_sum_buffers(1020, 4096, 2, 132, 2048) == []
    assert column_sum_buffers(4096, 128 * 132 * 16 + 4, 2, 132, 2048) == []


def test_a_sum_beyond_32_bit_offsets_is_halved() -> None:
    assert column_sum_buffers(2**17, 8192, 4, 132, 2048) == column_sum_buffers(2**15, 8192, 4, 132, 2048)


def test_only_sums_over_all_but_the_last_dimension() -> None:
    spaces = Workspaces(None)
    x = torch.empty(2, 2048, 4096, device="meta")
    sum_ = torch.ops.aten.sum.dim_IntList
    assert spaces.inside(sum_, (x, [0, 1]), None) == [sum(column_sum_buffers(4096, 4096, 4, 132, 2048))]
    assert spaces.inside(sum_, (x, [-1]), None) == []
    assert spaces.inside(sum_, (x, [0]), None) == []
    assert spaces.inside(torch.ops.aten.mul.Tensor, (x, x), None) == []


def test_a_card_with_fewer_threads_has_fewer_blocks() -> None:
    """A processor of an RTX 4090 (8.9) holds 1,536 threads: 12 blocks of 128."""
    say_capability((8, 9))
    x = torch.empty(8192, 512, device="meta")
    blocks = 128  # 132 x 12 / 4 side by side = 396, but 8,192 rows / 4 / 16 values = 128
    assert Workspaces(None).inside(torch.ops.aten.sum.dim_IntList, (x, [0]), None) == [4 * 512 * blocks * 128 + 4 * 4]


def test_flash_backward() -> None:
    """100 tokens are padded to 128, 80 wide heads to 96; dk and dv have all 8 heads before they are summed to 2."""
    query, key = made(2, 8, 100, 80), made(2, 2, 100, 80)
    expected = 4 * 2 * 8 * 128 * 96 + 4 * 2 * 8 * 128 + 2 * (2 * 100 * 8 * 80 * 2)
    assert Workspaces(None).inside(FLASH, (query, query, key, key), None) == [expected]


def test_flash_backward_of_wide_heads() -> None:
    query = made(1, 2, 128, 224)
    assert Workspaces(None).inside(FLASH, (query, query, query, query), None) == [4 * 2 * 128 * 256 + 4 * 2 * 128]


def test_a_gradient_that_lies_otherwise_is_copied() -> None:
    query = made(1, 2, 128, 64)
    by_heads = torch.empty(1, 2, 128, 64, dtype=torch.bfloat16, device="meta")
    straight, turned = (Workspaces(None).inside(FLASH, (gradient, query, query, query), None)[0] for gradient in (query, by_heads))
    assert turned - straight == 2 * 128 * 64 * 2


def test_efficient_backward_in_bfloat16() -> None:
    """Tiles of 128 x 128, of which each has 16 bytes beside its numbers: 8 tiles for 1,000 queries of width 128."""
    x = made(1, 4, 1000, 128)
    expected = 4 * 4 * (8 * (4 + 128 * 128)) + 4 * 4 * 1000
    assert Workspaces(None).inside(EFFICIENT, (x, x, x, x), None) == [expected]


def test_efficient_backward_in_float32() -> None:
    """dk and dv need buffers too, for each of 256 / 64 parts of the keys; before, a product as large as the output and two sums."""
    x = made(2, 1, 256, 64, dtype=torch.float32)
    per_query = 4 * 2 * 256
    tiles = 4 * (4 + 64 * 64) + 4 * 64 * (64 + 64)
    assert Workspaces(None).inside(EFFICIENT, (x, x, x, x), None) == [4 * 2 * 256 * 64 + 2 * per_query, per_query + 4 * 2 * tiles]


def test_the_keys_are_divided_less_often_the_more_heads_there_are() -> None:
    """200 / (2 rows x 32 heads) = 3 parts, though there are 1,024 / 64 = 16 tiles of keys; heads are padded to whole tiles of 128."""
    x = made(2, 32, 1024, 256)
    elements = 8 * 4 * (4 + 128 * 64) + 3 * 64 * (256 + 256)
    assert Workspaces(None).inside(EFFICIENT, (x, x, x, x), None) == [4 * 64 * 1024 + 4 * 64 * elements]


def test_the_gradient_of_an_embedding() -> None:
    """4,096 tokens, all of them different at most: 4,096 rows and 409 for tens of equal ones, in float32; lists of 8-byte numbers."""
    gradient = torch.empty(1, 4096, 2048, dtype=torch.bfloat16, device="meta")
    tokens = torch.empty(1, 4096, dtype=torch.long, device="meta")
    rows = 409 + 4096
    backward = torch.ops.aten.embedding_dense_backward.default
    spaces = Workspaces(None)
    assert spaces.inside(backward, (gradient, tokens, 128256, -1, False), None) == [rows * 2048 * 4 + 8 * (3 * 4096 + 2 * 4096 + rows)]
    few = 409 + 1000
    assert spaces.inside(backward, (gradient, tokens, 1000, -1, False), None) == [few * 2048 * 4 + 8 * (3 * 4096 + 2 * 1000 + few)]
    assert spaces.inside(backward, (gradient[:, :3072], tokens[:, :3072], 128256, -1, False), None) == []


@pytest.mark.parametrize(("dtype", "name"), [(torch.bfloat16, "bf16"), (torch.float16, "f16"), (torch.float32, "f32")])
@pytest.mark.parametrize(("of_card", "arch"), [((8, 0), 80), ((7, 5), 75), ((7, 0), 70)])
def test_tiles_are_those_that_the_header_lists(dtype: torch.dtype, name: str, of_card: tuple[int, int], arch: int) -> None:
    """The first kernel of each list that is wide enough; ``dispatch_cutlassB`` asks them in this order."""
    text = CUTLASS.read_text(encoding="utf-8")
    body = re.search(rf"dispatch_cutlassB_{name}_sm{arch}\(T cb, int cc\) {{(.*?)\n}}", text, flags=re.DOTALL)
    if body is None:
        assert (name, arch) in (("bf16", 75), ("bf16", 70))  # no such kernel: attention takes the math one there
        return
    pattern = r"^\s+cb\(AttentionBackwardKernel<[\w:]+, [\w:]+, true, false, \w+, (\d+), (\d+), (\d+)"
    listed = [tuple(map(int, found)) for found in re.findall(pattern, body.group(1), flags=re.MULTILINE)]
    say_capability(of_card)
    for width in (16, 32, 64, 80, 96, 128, 192, 256, 512):
        across, down, most = next(kernel for kernel in listed if kernel[2] >= width)
        assert _efficient_tile(dtype, width) == (across, down, dtype != torch.float32 and most <= across), width


def test_a_workspace_for_each_handle_of_cublas() -> None:
    """33,554,432 bytes on Hopper, 8,519,680 before it. Source: CUDABlas / CublasHandlePool.cpp, getChosenWorkspaceSize."""
    assert Workspaces(find_card("H100-SXM")).matrix_product_bytes == 33_554_432
    assert Workspaces(find_card("A100-SXM4-80GB")).matrix_product_bytes == 8_519_680
