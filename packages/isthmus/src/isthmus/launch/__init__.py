"""``isthmus run``: starts a job, watches its ranks, and finds the one that made it fail."""
