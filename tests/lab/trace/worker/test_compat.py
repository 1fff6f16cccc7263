"""Changes to libraries: each one's self-test, and that CUDA's choices are those of its source."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fullstep.lab.trace.front.process import ENVIRONMENT
from fullstep.lab.trace.worker.compat import UNITS, autocast
from fullstep.lab.trace.worker.compat.attention import kernel_of
from fullstep.lab.trace.worker.compat.capabilities import capability, say_capability

pytestmark = pytest.mark.real_classes
LISTS = (Path(torch.__file__).parent / "include/ATen/autocast_mode.h").read_text(encoding="utf-8")
HOPPER, AMPERE, ADA, TURING, VOLTA = (9, 0), (8, 0), (8, 9), (7, 5), (7, 0)
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@pytest.fixture(scope="module")
def changed() -> dict[str, Any]:
    """What ``changed_libraries.py`` found, in a process of its own: the changes last."""
    script = Path(__file__).with_name("changed_libraries.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, env={**os.environ, **ENVIRONMENT})
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(autouse=True)
def card_of_one_test() -> Iterator[None]:
    before = capability()
    yield
    say_capability(before)


@pytest.mark.parametrize("name", [unit.name for unit in UNITS])
def test_the_change_holds(changed: dict[str, Any], name: str) -> None:
    assert changed["units"][name] == ""


def test_units_have_names_of_their_own_and_a_reason() -> None:
    assert len({unit.name for unit in UNITS}) == len(UNITS)
    assert all(unit.why for unit in UNITS)
    imposed = {unit.name for unit in UNITS if unit.imposes_cuda}
    assert imposed == {"attention", "fused_on_cuda", "autocast", "capabilities", "linear_algebra"}


# attention


@pytest.mark.parametrize(
    ("of_card", "dtype", "widths", "how", "expected"),
    [
        (HOPPER, BF16, (128, 128), {}, "flash"),
        (AMPERE, FP16, (64, 64), {"grouped": True}, "flash"),
        (AMPERE, BF16, (256, 256), {}, "flash"),
        (AMPERE, BF16, (264, 264), {}, "efficient"),
        (AMPERE, BF16, (260, 260), {}, "math"),  # not a multiple of 8
        (AMPERE, BF16, (100, 100), {}, "flash"),  # padded to 104
        (AMPERE, BF16, (100, 100), {"mask": True}, "math"),
        (AMPERE, BF16, (192, 128), {}, "efficient"),  # latent attention: values are narrower
        (AMPERE, BF16, (192, 128), {"grouped": True}, "math"),
        (AMPERE, BF16, (128, 128), {"mask": True}, "efficient"),
        (AMPERE, BF16, (128, 128), {"mask": True, "grouped": True}, "math"),
        (AMPERE, BF16, (128, 128), {"causal": True, "keys": 40}, "efficient"),  # the two kernels disagree on where the diagonal ends
        (AMPERE, FP32, (128, 128), {}, "efficient"),
        (AMPERE, FP32, (128, 128), {"grouped": True}, "math"),
        (AMPERE, FP32, (66, 66), {}, "math"),  # not a multiple of 4
        (TURING, FP32, (66, 66), {}, "efficient"),
        (AMPERE, torch.float64, (64, 64), {}, "math"),
        (ADA, BF16, (192, 192), {}, "flash"),
        (ADA, BF16, (224, 224), {}, "efficient"),  # no backward within its shared memory
        (ADA, BF16, (256, 256), {}, "flash"),
        (ADA, BF16, (256, 256), {"dropout": 0.1}, "efficient"),
        (AMPERE, BF16, (224, 224), {}, "flash"),
        (TURING, FP16, (128, 128), {}, "efficient"),
        (VOLTA, FP16, (128, 128), {"grouped": True}, "math"),
        (TURING, BF16, (128, 128), {}, "math"),
    ],
)
def test_the_kernel_of_attention(
    of_card: tuple[int, int], dtype: torch.dtype, widths: tuple[int, int], how: dict[str, Any], expected: str
) -> None:
    """Source: sdp_utils.cpp, by its checks in their order."""
    say_capability(of_card)
    flags = {name: value for name, value in how.items() if name not in ("keys", "mask")}
    query = torch.empty(2, 8, 32, widths[0], dtype=dtype, device="meta")
    key = torch.empty(2, 2 if how.get("grouped") else 8, how.get("keys", 32), widths[0], dtype=dtype, device="meta")
    value = torch.empty(*key.shape[:3], widths[1], dtype=dtype, device="meta")
    assert kernel_of(query, key, value, query if "mask" in how else None, **flags) == expected


def test_flash_keeps_one_number_per_query(changed: dict[str, Any]) -> None:
    """[2, 4, 60, 64] in float16: the input, the output, and the logarithm of the sum in float32."""
    query, out, logsumexp = 2 * 4 * 60 * 64 * 2, 2 * 4 * 60 * 64 * 2, 2 * 4 * 60 * 4
    assert [size for size in changed["takes"]["attention"] if size > 16] == [query, out, logsumexp]


def test_narrow_heads_are_padded_to_a_multiple_of_8(changed: dict[str, Any]) -> None:
    """60 to 64, for query, key and value each."""
    padded = 2 * 4 * 60 * 64 * 2
    found = [size for size in changed["takes"]["attention, narrow heads"] if size > 16]
    assert found == [2 * 4 * 60 * 60 * 2, *[padded] * 4, 2 * 4 * 60 * 4]


def test_a_mask_becomes_numbers_once(changed: dict[str, Any]) -> None:
    """[2, 1, 64, 64] in float16, spread over the 4 heads; the logarithm for tokens padded to a multiple of 32."""
    query, mask, numbers, logsumexp = 2 * 4 * 64 * 64 * 2, 2 * 64 * 64, 2 * 64 * 64 * 2, 2 * 4 * 64 * 4
    assert [size for size in changed["takes"]["attention, mask"] if size > 16] == [query, mask, numbers, query, logsumexp]


def test_rows_of_a_mask_are_padded_to_a_multiple_of_8(changed: dict[str, Any]) -> None:
    """60 to 64: a copy."""
    query, mask, numbers, padded = 2 * 4 * 60 * 64 * 2, 2 * 60 * 60, 2 * 60 * 60 * 2, 2 * 60 * 64 * 2
    found = [size for size in changed["takes"]["attention, mask of an odd length"] if size > 16]
    assert found == [query, mask, numbers, padded, query, 2 * 4 * 64 * 4]


# kernels that CUDA fuses


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dropout", [131072, 131072, 65536]),  # the input, the output, and one byte per element
        ("dropout in float32", [262144, 262144, 65536]),
        ("softmax of float16", [131072, 262144]),  # no cast before it
        ("softmax of bfloat16", [131072, 262144, 262144]),
        ("rms norm", [131072, 2048, 256, 131072]),  # input, scale, a float32 per row, output
        ("layer norm", [131072, 2048, 2048, 131072, 128, 128]),  # mean and deviation in the input's dtype under the processor
    ],
)
def test_bytes_of_fused_kernels(changed: dict[str, Any], name: str, expected: list[int]) -> None:
    assert changed["takes"][name] == expected


# autocast


def _listed(macro: str) -> set[str]:
    body = re.search(rf"#define {macro}\(_\)(.*?)\n\n", LISTS, flags=re.DOTALL)
    assert body is not None
    return {".".join(part.strip() for part in entry.split(",")) for entry in re.findall(r"_\(([^)]*)\)", body.group(1))}


def test_float32_is_cudas_list() -> None:
    assert _listed("AT_FORALL_FP32") == autocast.FLOAT32


def test_operations_with_a_dtype_are_cudas_list() -> None:
    assert _listed("AT_FORALL_FP32_SET_OPT_DTYPE") == autocast.SETS_DTYPE.keys()


def test_the_place_of_the_dtype_is_that_of_the_schema() -> None:
    for name, place in autocast.SETS_DTYPE.items():
        names = [argument.name for argument in autocast._operation(name)._schema.arguments]  # type: ignore[attr-defined]
        assert names.index("dtype") == place, name


def test_operations_that_get_a_dtype_are_cudas_list() -> None:
    assert set(re.findall(r'"(norm\.\w+)"', LISTS)) == autocast.APPENDS_DTYPE.keys()


def test_promotions_are_cudas_list() -> None:
    assert _listed("AT_FORALL_PROMOTE") == autocast.PROMOTE


def test_the_lower_precision_is_cudas_list() -> None:
    """What the processor has too stays with its own rule."""
    registered = {name.removeprefix("aten::") for name in torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCPU")}
    assert _listed("AT_FORALL_LOWER_PRECISION_FP") - registered == autocast.LOWER


def test_only_the_processor_casts_spectra_and_joined_tensors() -> None:
    assert {"fft_fft", "cat", "stack", "cross_entropy_loss", "view_as_complex", "linalg_qr"} <= autocast.left_alone()
    assert not {"mm", "linear", "softmax.int"} & autocast.left_alone()


IN_FLOAT32 = {
    "rsqrt", "power", "softmax", "log_softmax", "sum", "sum over a dimension", "product", "norm", "norm over a dimension", "vector norm",
    "cumulated sum", "layer norm", "rms norm", "softplus", "logsumexp", "squared error", "cross entropy", "put at an index",
    "added by index",
}  # fmt: skip
IN_BFLOAT16 = {
    "mean", "silu", "gelu", "product of matrices", "linear", "convolution", "einsum", "vectors", "concatenated", "stacked", "multiplied",
}  # fmt: skip


def test_dtypes_under_autocast(changed: dict[str, Any]) -> None:
    expected = dict.fromkeys(IN_FLOAT32, "float32") | dict.fromkeys(IN_BFLOAT16, "bfloat16") | {"spectrum": "float64"}
    assert changed["autocast"] == expected


def test_dtypes_outside_of_it(changed: dict[str, Any]) -> None:
    assert changed["outside"] == {"rsqrt": "bfloat16", "sum": "bfloat16", "linear": "float32"}
