"""Sums of 16-bit numbers: what the CPU, the chip and float32 make of them."""
