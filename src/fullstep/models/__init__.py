"""Model shapes: exact parameter counts and block structure from a Hugging Face config."""

from fullstep.models.shape import Attention, Block, FeedForward, Linear, ModelShape, Norm, NormPlace, Role

__all__ = ["Attention", "Block", "FeedForward", "Linear", "ModelShape", "Norm", "NormPlace", "Role"]
