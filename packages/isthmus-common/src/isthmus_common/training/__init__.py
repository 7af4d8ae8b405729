"""The output of a training program: its iterations, their speed, and a line that follows them."""
