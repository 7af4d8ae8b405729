"""Writes C++ from csrc/opapi/functions.table, when the package is built."""
