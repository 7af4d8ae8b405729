"""The operators that have no kernel in C++ yet: those of the numpy chip."""

from isthmus.drivers.numpy.operators import library

__all__ = ["library"]
