"""`settings.OUTLAST`, addresses of `DATABASES`, and system checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import outlast.integrations.django as integration
from outlast import InvalidSetting
from outlast.integrations.django.conf import parse_settings
from outlast.integrations.django.database_url import _postgres_url
from outlast.store.address import parse
from outlast.store.schema import latest
from tests.integrations.django.shop import Shop
from tests.support import Database


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"databse": "x"}, r"OUTLAST\['databse'\] is unknown: did you mean 'database'\?"),
        ({"SCHEMA": "x"}, "did you mean 'schema'"),
        ({"colour": 1}, "known names: ambient, autodiscover, blobs, database"),
        ({"schema": 'x"; --'}, "must be 1 to 48 of a–z"),
        ({"schema": 7}, "must be of type str, not 7"),
        ({"ambient": "joined"}, "must be one of join, warn and off, not 'joined'"),
        ({"store": {"pool_sise": 3}}, r"OUTLAST\['store'\]\['pool_sise'\].*'pool_size'"),
        ({"store": {"pool_size": 0}}, "pool_size must be at least 1"),
        ({"retention": []}, "must be of type Mapping"),
        ([], "OUTLAST must be a dictionary"),
    ],
)
def test_a_bad_setting_is_refused_with_the_nearest_spelling(given: Any, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        parse_settings(given)


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ({"NAME": "shop"}, "postgresql:///shop"),
        (
            {"NAME": "a/b", "USER": "u@x", "PASSWORD": "p:/@%", "HOST": "db", "PORT": 5433},
            "postgresql://u%40x:p%3A%2F%40%25@db:5433/a%2Fb",
        ),
        ({"NAME": "s", "HOST": "::1", "PORT": "5"}, "postgresql://[::1]:5/s"),
        ({"NAME": "s", "HOST": "/run/pg"}, "postgresql:///s?host=%2Frun%2Fpg"),
        (
            {"NAME": "s", "HOST": "a,b", "PORT": "1,2", "OPTIONS": {"sslmode": "require"}},
            "postgresql:///s?sslmode=require&host=a%2Cb&port=1%2C2",
        ),
        ({"OPTIONS": {"service": "shop", "pool": True}}, "postgresql:///?service=shop"),
        (
            {"NAME": "s", "OPTIONS": {"assume_role": "a b", "options": "-c x=1"}},
            "postgresql:///s?options=-c%20x%3D1%20-c%20role%3Da%5C%20b",
        ),
    ],
)
def test_the_url_of_an_entry_of_databases(entry: dict[str, Any], url: str) -> None:
    assert _postgres_url(entry) == url
    assert "p:/@%" not in str(parse(url))


def test_every_version_of_the_tables_has_a_migration_of_django_s() -> None:
    """`manage.py migrate` would not know of the tables of a later release otherwise."""
    folder = Path(integration.__file__).parent / "migrations"
    assert sorted(file.name[:4] for file in folder.glob("0*.py")) == [
        f"{version:04}" for version in range(1, latest() + 1)
    ]


@pytest.mark.kinds("sqlite")
def test_system_checks_report_what_cannot_work(database: Database) -> None:
    """An engine that cannot hold jobs, an alias that is not there, a misspelt name."""
    dummy = Shop(database, ENGINE="django.db.backends.dummy")
    assert "outlast.E002" in (said := dummy.run("check", code=1))
    assert "jobs are stored in PostgreSQL or SQLite" in said
    elsewhere = Shop(database, {"database": "elsewhere"}).run("check", code=1)
    assert "names 'elsewhere', but DATABASES has: default" in elsewhere
    misspelt = Shop(database, {"databse": "default"}).run("check", code=1)
    assert "did you mean 'database'?" in misspelt
    assert "outlast.W001" in Shop(database, OPTIONS={}).run("check")
