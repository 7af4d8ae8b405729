"""What PyTorch must be taught about the chip, where its own code names the devices it knows."""
