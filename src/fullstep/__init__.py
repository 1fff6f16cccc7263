"""fullstep: choose the GPUs for fine-tuning a language model by the peak memory of the full step."""

__version__ = "0.1.0"
