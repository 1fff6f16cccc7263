"""fullstep: choose the GPUs for fine-tuning a language model, and prove that the choice was right."""

__version__ = "0.1.0"
