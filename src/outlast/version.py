"""The release, readable without importing anything."""

VERSION = "0.1.0"
