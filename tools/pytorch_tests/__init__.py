"""PyTorch's own tests for any device, on the chip."""
