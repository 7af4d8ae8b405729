"""The allocators and the host chip's collectives under random programs on many threads, with sanitizers."""
