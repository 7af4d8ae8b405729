"""``isthmus migrate verify``: the original and the converted program side by side."""
