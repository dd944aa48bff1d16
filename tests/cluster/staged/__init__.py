"""A cluster of real processes on this machine, and what can be done to it."""
