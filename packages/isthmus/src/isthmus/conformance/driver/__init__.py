"""Conformance cases of the functions of driver.h, one file per group."""
