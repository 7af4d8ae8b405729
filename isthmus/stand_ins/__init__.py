"""Packages that answer under a stranger's name where the real one is absent; see :mod:`isthmus.stand_ins.provide`.

They are imported by their own names (``flash_attn``, ``apex``), never from here.
"""
