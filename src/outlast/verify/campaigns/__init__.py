"""Campaigns: one file for each `outlast verify` command, and the bases they share."""
