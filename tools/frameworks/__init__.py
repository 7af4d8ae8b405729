"""Frameworks and popular programs, unmodified, under ``isthmus run``: ``make frameworks``."""
