"""What a training program prints: its iterations, their speed, and a line that follows them."""
