"""Patches of PyTorch for the chip, where its own code names the devices it knows."""
