"""Faults: kills, frozen processes, broken networks, stepped clocks and servers that crash."""
