"""``isthmus plan``: fit a training job in memory, by a plan of what each layer recomputes."""
