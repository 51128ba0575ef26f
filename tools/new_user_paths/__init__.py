"""Follow the pages that a new user follows, and time each of their commands."""
