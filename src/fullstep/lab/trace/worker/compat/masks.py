"""transformers takes fake tensors for a symbolic trace and then always builds the causal mask, which changes the kernel of attention.

Whether a batch is packed (no mask) or padded is stated by the worksheet, not read from the values of a mask.
"""

from __future__ import annotations

from typing import Any

from fullstep.lab.trace.worker.compat.unit import Unit

_packed = True


def say_packed(packed: bool) -> None:
    """Whether the mask that a batch brings is all ones (packed rows) or not (padded rows)."""
    global _packed  # noqa: PLW0603 - what the changed library asks has no other place to stand
    _packed = packed


def _install() -> None:
    from transformers import masking_utils  # noqa: PLC0415

    masking_utils.is_tracing = lambda *_, **__: False
    masking_utils.find_packed_sequence_indices = lambda *_, **__: None
    masking_utils.fast_all = lambda *_, **__: _packed


def _self_test() -> None:
    import torch  # noqa: PLC0415
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, LlamaConfig  # noqa: PLC0415

    config: Any = LlamaConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=32, attn_implementation="sdpa"
    )
    seen: list[bool] = []
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = AutoModelForCausalLM.from_config(config)
        block = model.model.layers[0]
        block.register_forward_pre_hook(lambda _, __, kwargs: seen.append(kwargs["attention_mask"] is None), with_kwargs=True)
        ids = torch.zeros(2, 8, dtype=torch.long)
        model(input_ids=ids, use_cache=False)
        say_packed(False)
        model(input_ids=ids, attention_mask=torch.ones(2, 8, dtype=torch.long), use_cache=False)
        say_packed(True)
    assert seen == [True, False], seen


MASKS = Unit(
    name="masks",
    why="transformers would build a causal mask for every fake batch",
    install=_install,
    self_test=_self_test,
    libraries=("transformers",),
)
