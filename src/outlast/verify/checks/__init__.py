"""Checks: the evidence a campaign leaves, and the invariants that the checker decides from it."""
