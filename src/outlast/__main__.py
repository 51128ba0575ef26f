"""`python -m outlast` is `outlast`."""

from .cli import main

if __name__ == "__main__":
    main()
