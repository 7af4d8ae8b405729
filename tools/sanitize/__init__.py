"""Fuzz the allocators, work that comes later and the host chip's collectives on many threads, with sanitizers."""
