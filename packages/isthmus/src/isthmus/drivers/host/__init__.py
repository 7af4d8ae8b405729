"""The host chip: a driver on CPU threads and memory, built from csrc/drivers/host."""
