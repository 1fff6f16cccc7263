"""A program under torch.compile."""

from __future__ import annotations

from fullstep.lab.buildable import compiles_blocks
from fullstep.lab.program.real import Program


def compile_program(program: Program) -> None:
    """Model or blocks are compiled when they are next called. Names of parameters stay as they are.

    A model under DDP is compiled inside of it: torch cuts its graph where a bucket is full, as it does for a compiled DDP.

    Args:
        program: in its layout
    """
    if compiles_blocks(program.settings):
        for block in program.blocks:
            block.compile()
        return
    getattr(program.model, "module", program.model).compile()
