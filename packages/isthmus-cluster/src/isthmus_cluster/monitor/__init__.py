"""Current state of the cards of a cluster: health, power, temperature, memory, utilization, processes."""
