"""``isthmus cluster watch``: the ranks, collectives, cards and faults of a running job, in the terminal or a page."""
