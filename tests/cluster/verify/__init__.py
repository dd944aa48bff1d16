"""What clients saw of a cluster, and whether it keeps the promises. No network, clock or broker here."""
