"""Model shapes: exact parameter counts and block structure from a Hugging Face config."""

from fullstep.models.adapters import EXPERT_TARGETS
from fullstep.models.catalogue import BundledModel, bundled_config, bundled_models, find_model
from fullstep.models.config import read_config, shape_from_config, supported_model_types
from fullstep.models.raw_config import model_config
from fullstep.models.shape import Attention, Block, FeedForward, Linear, ModelShape, Norm, NormKind, NormPlace, Role

__all__ = [
    "EXPERT_TARGETS",
    "Attention",
    "Block",
    "BundledModel",
    "FeedForward",
    "Linear",
    "ModelShape",
    "Norm",
    "NormKind",
    "NormPlace",
    "Role",
    "bundled_config",
    "bundled_models",
    "find_model",
    "model_config",
    "read_config",
    "shape_from_config",
    "supported_model_types",
]
