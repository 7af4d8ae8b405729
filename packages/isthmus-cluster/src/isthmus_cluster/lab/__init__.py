"""A cluster of network namespaces on this machine, with links and cards that fail on demand."""
