"""Checks: the evidence a campaign leaves, and the invariants that the judge decides from it."""
