"""The functions of driver.h as conformance cases, one file for each of its groups."""
