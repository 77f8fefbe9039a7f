"""The layered memory: the seeds it begins with, what of it every prompt carries, the one way to write it, its journal."""

from .layers import INSIGHT_LINES, L0, L1, L2, insight, layer
from .seeds import ensure_seeds

__all__ = ["INSIGHT_LINES", "L0", "L1", "L2", "ensure_seeds", "insight", "layer"]
