"""Debugging of Triton kernels: bounds, uninitialised reads, races between programs, locks that are never released.

A launch is checked with ``debug=True``, and all launches under ``ISTHMUS_TRITON_DEBUG=1``. A fault raises
:class:`KernelFault` at the launch.
"""

from isthmus_triton.debug.faults import KernelFault

__all__ = ["KernelFault"]
