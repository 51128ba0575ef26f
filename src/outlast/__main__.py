"""`python -m outlast` is `outlast`."""

from .cli import main

main()
