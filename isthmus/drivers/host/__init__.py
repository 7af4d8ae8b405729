"""The host chip: a driver over CPU threads and memory. Its library is built from csrc/drivers/host."""
