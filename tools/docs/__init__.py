"""Generators of reference pages: each prints a page that a test compares with the code."""
