"""Helpers shared by all layers: files, exits, child processes, tables, progress, HTML, patches, import hooks."""
