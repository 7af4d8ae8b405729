"""Replacements for packages that are not installed, under their names; see :mod:`isthmus.stand_ins.provide`.

They are imported by those names (``flash_attn``, ``apex``), not from this package.
"""
