"""Which kernels and number formats a block runs with: all that decides the size of what it keeps."""

from __future__ import annotations

from typing import Literal, NamedTuple

FLOAT32 = 4
"""bytes of one element"""

AttentionKernel = Literal["eager", "flash", "efficient", "math"]
ContextExchange = Literal["ring", "gather", "heads"]
"""keys and values go round the ring of context ranks, are gathered from them, or heads are exchanged for parts of the row"""


class AdapterKernels(NamedTuple):
    """Adapters on the linears of a block."""

    kind: str
    rank: int
    targets: frozenset[str]
    dropout: bool
    element_bytes: int
    """of adapter weights as a block reads them: FSDP2 gathers a block's in the compute dtype, FSDP1 gathers each after peft saw its own"""
    new_gradient: int
    """as in Kernels"""
    casts_input: bool
    """the input is copied to the adapters' dtype first (peft: where it differs, but not under a 4-bit layer in autocast)"""


class Kernels(NamedTuple):
    """Sizes are bytes per element unless said otherwise."""

    rows: int
    sequence_tokens: int
    compute: int
    """activations that matrix products read and write"""
    residual: int
    """the stream between blocks"""
    autocast: bool
    stored: int
    """weights"""
    trains_weights: bool
    """linears and norms of the block train themselves (full fine-tuning)"""
    new_gradient: int
    """weight gradients that backward leaves behind, per element"""
    gradient_work: int
    """and what exists besides while one is made: the product's own dtype, or the summand of an accumulation"""
    adapter: AdapterKernels | None
    quantized: bool
    """linears of the block are kept in 4 or 8 bits and dequantized one by one"""
    quantized_keeps_input: bool
    """the quantized product keeps its input although its weights are frozen"""
    attention: AttentionKernel
    masked: bool
    """the kernel reads a mask of rows x length x length, which every block keeps in the compute dtype"""
    window: int | None
    """keys that a token sees at most; None: all before it"""
    extra_keys: int
    """virtual tokens that prefix tuning puts before the keys and values"""
    repeats_keys: bool
    """keys and values are copied out to all heads before attention"""
    fused: bool
    """norm, rotary and adapter kernels in Triton that recompute instead of keeping (fms_acceleration, unsloth)"""
    compile: bool
    """elementwise results are recomputed in fused kernels instead of kept"""
    joins_heads: bool
    """queries, keys and values come out of one product also where the model's own class has three (litgpt)"""
    stacks_experts: bool
    """experts are one parameter (grouped products) instead of one module each"""
    weights_rows_in_float32: bool = False
    """experts' rows are weighted by float32 shares, which makes float32 rows of them"""
    tensor: int = 1
    """ranks among which matrices are cut; the block is one rank's part already"""
    gathered_roles: frozenset[str] = frozenset()
    """of matrices whose cut outputs are put together again, and of those that take their part of such an input"""
    sequence_parallel: bool = False
    """norms and the stream have ``1 / tensor`` of the tokens; a product's input is gathered before it"""
    gathers_again: bool = False
    """backward gathers that input once more instead of keeping it (Megatron)"""
    context: int = 1
    """ranks among which rows are divided; ``sequence_tokens`` is one rank's part already"""
    exchange: ContextExchange = "ring"
    deals_experts: bool = False
    """tokens travel to the rank of their expert and back"""

    @property
    def tokens(self) -> int:
        return self.rows * self.sequence_tokens

    @property
    def row_tokens(self) -> int:
        """Of a whole row, over all context ranks: what one query may attend to."""
        return self.sequence_tokens * self.context

    def on_the_stream(self) -> Kernels:
        """The same with the tokens that norms and the stream between blocks have on this rank."""
        if not self.sequence_parallel:
            return self
        return self._replace(rows=1, sequence_tokens=-(-self.tokens // self.tensor))

    def in_one_row(self) -> Kernels:
        """The same with all tokens in one row, where nothing hangs on how they are split: one profile then serves many micro-batches."""
        if self.attention in ("eager", "math") or self.masked or self.extra_keys:
            return self
        return self._replace(rows=1, sequence_tokens=self.tokens)


def column_sum_bytes(elements: float) -> float:
    """Workspace of a sum of this many elements over all rows: torch sums the gradient of a scale or a shift through two float32 buffers
    of its size, which grow with the rows only until they fill the card's multiprocessors (about 138 MB on 132 of them).

    >>> column_sum_bytes(1000), column_sum_bytes(10**9) / 2**20
    (8000.0, 128.0)
    """
    return min(8.0 * elements, 2.0**27)
