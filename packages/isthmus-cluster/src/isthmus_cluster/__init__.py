"""Jobs on a cluster: inventory, rank tables, launch files, checks of hosts and cards, and a watch over jobs."""
