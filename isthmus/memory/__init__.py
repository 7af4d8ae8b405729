"""Traces of what training allocates, and how well an allocator serves them.

``isthmus memory trace`` makes, records and shows traces; ``isthmus memory replay`` runs allocators over them.
"""
