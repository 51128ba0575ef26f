"""Authentication: tokens, sessions, revocation, and throttling of failed logins."""
