"""The release, readable without imports."""

VERSION = "0.1.0"
