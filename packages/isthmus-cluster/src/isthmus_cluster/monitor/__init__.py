"""What the cards of a cluster do now: health, power, temperature, memory, utilization, processes."""
