"""Integrations with frameworks. Each is imported only by the program that uses it."""
