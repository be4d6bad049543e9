"""The native side: layers over torch tensors, and the threads that they share."""

from .._core import BorrowedLayer, Threads, check_finite

__all__ = ["BorrowedLayer", "Threads", "check_finite"]
