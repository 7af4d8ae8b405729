"""The cluster: inventory, rank tables, launch plans, and checks of its machines."""
