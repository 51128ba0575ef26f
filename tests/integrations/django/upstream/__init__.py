"""Django's own tests of tasks, from its source distribution, against our backend."""
