"""Helpers that every layer shares: files, exits, child processes, monkey patches, import hooks."""
