"""Measuring what one client causes in the broker."""
