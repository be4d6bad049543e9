"""Sparse attention of Transformers models by Seriatim.

    import seriatim.transformers
    seriatim.transformers.enable(model)      # generate, chunked prefill, beams, ... as before
    seriatim.transformers.disable(model)     # and everything is as it was
"""

from ._enable import disable, enable, is_enabled, watching
from .refusal import Unsupported

__all__ = ["Unsupported", "disable", "enable", "is_enabled", "watching"]
