"""`manage.py outlast …`: the command line of Outlast, on the database of this project."""

from __future__ import annotations

from argparse import REMAINDER
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from outlast.integrations.django.command_line import run


class Command(BaseCommand):  # type: ignore[misc]
    help = "Run the command line of Outlast on this project's database; see `outlast --help`."

    def run_from_argv(self, argv: list[str]) -> None:
        """Pass all further arguments to Outlast, including `--help`."""
        self.check()
        run(argv[2:])

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("arguments", nargs=REMAINDER)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            run([*args, *options["arguments"]])
        except SystemExit as end:
            if end.code:
                raise CommandError(f"outlast ended with {end.code}") from end
