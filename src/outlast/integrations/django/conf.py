"""`settings.OUTLAST`: the settings of the app, checked as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from ...client.ambient import AmbientMode, check_ambient
from ...model.errors import InvalidSetting
from ...model.settings import RetentionSettings, StoreSettings
from ...store.address import DEFAULT_SCHEMA, check_schema


@dataclass(frozen=True, slots=True)
class DjangoSettings:
    """The fields of `settings.OUTLAST`."""

    database: str | None = None  # an alias of DATABASES; None: the router's write database
    schema: str = DEFAULT_SCHEMA
    tenant_required: bool | None = None
    blobs: str | None = None
    ambient: AmbientMode = "join"
    autodiscover: bool = True
    store: Mapping[str, Any] = field(default_factory=dict)  # of `StoreSettings`
    retention: Mapping[str, Any] = field(default_factory=dict)  # of `RetentionSettings`

    @property
    def store_settings(self) -> StoreSettings:
        return StoreSettings.of(**self.store)

    @property
    def retention_settings(self) -> RetentionSettings:
        return RetentionSettings.of(**self.retention)

    @property
    def alias(self) -> str:
        """The alias of the database that holds the jobs."""
        if self.database is not None:
            return self.database
        from django.db import router

        from .models import StoredJob

        return str(router.db_for_write(StoredJob))


_TYPES: dict[str, tuple[type, ...]] = {
    "database": (str, type(None)),
    "schema": (str,),
    "tenant_required": (bool, type(None)),
    "blobs": (str, type(None)),
    "autodiscover": (bool,),
    "store": (Mapping,),
    "retention": (Mapping,),
}


def read_settings() -> DjangoSettings:
    """The settings of this project."""
    from django.conf import settings

    return parse_settings(getattr(settings, "OUTLAST", {}))


def parse_settings(given: object) -> DjangoSettings:
    if not isinstance(given, Mapping):
        raise InvalidSetting(field="OUTLAST", reason=f"must be a dictionary, not {given!r:.80}")
    known = [spec.name for spec in fields(DjangoSettings)]
    for name in given:
        if name not in known:
            raise InvalidSetting(field=_place(name), reason=_unknown(str(name), known))
    for name, kinds in _TYPES.items():
        if name in given and not isinstance(given[name], kinds):
            words = " or ".join("None" if k is type(None) else k.__name__ for k in kinds)
            reason = f"must be of type {words}, not {given[name]!r:.80}"
            raise InvalidSetting(field=_place(name), reason=reason)
    check_ambient(given.get("ambient", "join"))
    check_schema(given.get("schema", DEFAULT_SCHEMA))
    read = DjangoSettings(**given)
    for name, kind in (("store", StoreSettings), ("retention", RetentionSettings)):
        inner = [spec.name for spec in fields(kind)]
        for key in given.get(name, ()):
            if key not in inner:
                raise InvalidSetting(
                    field=f"{_place(name)}[{key!r}]", reason=_unknown(str(key), inner)
                )
    _ = read.store_settings, read.retention_settings  # raises for values out of range
    return read


def _place(name: object) -> str:
    return f"OUTLAST[{name!r}]"


def _unknown(name: str, known: list[str]) -> str:
    close = get_close_matches(name.lower(), known, 1, 0.6)
    if close:
        return f"is unknown: did you mean {close[0]!r}?"
    return f"is unknown; known names: {', '.join(sorted(known))}"
