"""Modules under the import paths that frameworks expect; see :mod:`isthmus.launch.provide`.

They are found by their own names (``flash_attn``, ``apex``), so that nothing imports them from here.
"""
