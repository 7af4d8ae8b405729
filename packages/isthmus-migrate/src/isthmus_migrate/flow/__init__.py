"""Data flow of a project: which strings, variables and attributes are devices, as far as the source shows."""
