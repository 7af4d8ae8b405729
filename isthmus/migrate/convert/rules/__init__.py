"""The rules that come with Isthmus, one per file."""
