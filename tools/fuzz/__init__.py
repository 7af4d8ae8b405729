"""Random programs on the chip against the CPU, eagerly and captured as graphs: ``make fuzz``."""
