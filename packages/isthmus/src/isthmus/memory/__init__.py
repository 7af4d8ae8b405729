"""Traces of the allocations of training, and replay of allocators over them.

``isthmus memory trace`` records and shows traces; ``isthmus memory replay`` runs allocators over them.
"""
