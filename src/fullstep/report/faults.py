"""All faults of an input for the terminal, one a paragraph."""

from __future__ import annotations

from fullstep.errors import InputError


def faults_text(error: InputError) -> str:
    """Every fault, the first one after the program's name.

    >>> from fullstep.errors import Fault
    >>> faults_text(InputError(Fault("job.toml:3: method.kind", '"lra"', "full, lora", 'Did you mean "lora"?')))
    'fullstep: job.toml:3: method.kind: "lra"; allowed: full, lora. Did you mean "lora"?\\n'
    """
    if len(error.faults) == 1:
        return f"fullstep: {error.faults[0]}\n"
    return f"fullstep: {len(error.faults)} faults\n" + "".join(f"  {fault}\n" for fault in error.faults)
