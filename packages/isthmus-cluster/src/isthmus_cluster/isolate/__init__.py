"""Finding faulty nodes, cards, links, racks, switches and rails of a cluster with few and short tests."""
