"""Fuzz the allocators and the host chip's collectives on many threads, with sanitizers."""
