"""Import the app that defines the tasks: `module:attr`, found from the working directory."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ..model.errors import InvalidOption

if TYPE_CHECKING:
    from ..client.client import Outlast
    from ..client.databases import Databases


def find_app(name: str, url: str | None, schema: str | None, blobs: str | None = None) -> Outlast:
    """The app, on the database of the command line if one is passed."""
    # Before the import: `Outlast()` without arguments reads the environment.
    overrides = {"OUTLAST_URL": url, "OUTLAST_SCHEMA": schema, "OUTLAST_BLOBS": blobs}
    os.environ.update({variable: value for variable, value in overrides.items() if value})
    app = load_app(name)
    if url or schema or blobs:
        app.move(url, schema, blobs)
    return app


def load_app(name: str) -> Outlast:
    """Load one `Outlast`, or one of several databases by its name."""
    from ..client.databases import Databases

    module, found = _load(name)
    if isinstance(found, Databases):
        raise _invalid_app(name, f"is several databases: name one, {_available_apps(module)}")
    return found


def load_databases(name: str) -> Databases | None:
    """Several databases; None: the name is that of one Outlast."""
    from ..client.databases import Databases

    _, found = _load(name)
    return found if isinstance(found, Databases) else None


def _load(name: str) -> tuple[ModuleType, Outlast | Databases]:
    module_name, colon, path = name.partition(":")
    if not module_name or (colon and not path):
        raise _invalid_app(name, "must be module:attr, such as shop.tasks:ol")
    if module_name.endswith(".py") or os.sep in module_name:
        suggestion = module_name.removesuffix(".py").strip("./").replace(os.sep, ".")
        raise _invalid_app(name, f"must be a module, not a file: write {suggestion}{colon}{path}")
    module = _import(name, module_name)
    return module, _attribute(name, module, path) if path else _only_app(name, module)


def _import(name: str, module_name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise _invalid_app(
                name, f"cannot be imported: no module {missing!r} in {here} or installed"
            ) from error
        raise _invalid_app(
            name, f"cannot be imported: it needs the module {missing!r}, which is not installed"
        ) from error
    except Exception as error:
        raise _invalid_app(name, f"cannot be imported: {_error_summary(error)}") from error


def _attribute(name: str, module: ModuleType, path: str) -> Outlast | Databases:
    value: object = module
    for part in path.split("."):
        try:
            value = _part(value, part)
        except (AttributeError, KeyError):
            raise _invalid_app(name, f"has no {path!r}: {_available_apps(module)}") from None
    from ..client.client import Outlast
    from ..client.databases import Databases

    value = _own_outlast(value)
    if not isinstance(value, Outlast | Databases):
        raise _invalid_app(
            name, f"is of type {type(value).__name__}, not an Outlast: {_available_apps(module)}"
        )
    return value


def _part(value: object, name: str) -> object:
    """An attribute, or one of several databases."""
    from ..client.databases import Databases

    return value.by_name[name] if isinstance(value, Databases) else getattr(value, name)


def _only_app(name: str, module: ModuleType) -> Outlast:
    apps = _apps(module)
    if len({id(app) for app in apps.values()}) != 1:
        raise _invalid_app(name, f"does not name one Outlast: {_available_apps(module)}")
    return next(iter(apps.values()))


def _apps(module: ModuleType) -> dict[str, Outlast]:
    from ..client.client import Outlast
    from ..client.databases import Databases

    found = {name: _own_outlast(value) for name, value in vars(module).items()}
    several = [(name, value) for name, value in found.items() if isinstance(value, Databases)]
    found |= {f"{name}.{one}": ol for name, value in several for one, ol in value.by_name.items()}
    return {name: value for name, value in found.items() if isinstance(value, Outlast)}


def _own_outlast(value: object) -> object:
    """The `Outlast` of an app of another kind, such as `Celery`, else the value itself."""
    from ..client.client import Outlast

    own = vars(value).get("ol") if hasattr(value, "__dict__") else None
    return own if isinstance(own, Outlast) and not isinstance(value, ModuleType) else value


def _available_apps(module: ModuleType) -> str:
    apps = [f"{module.__name__}:{name}" for name in _apps(module)]
    return f"found {', '.join(apps)}" if apps else f"{module.__name__} creates no Outlast(…)"


def _error_summary(error: Exception) -> str:
    """The error in the user's code, and its location."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "importlib" not in frame.filename]
    where = f" ({own[-1].filename}, line {own[-1].lineno})" if len(own) > 1 else ""
    return f"{type(error).__name__}: {error}{where}"


def _invalid_app(name: str, reason: str) -> InvalidOption:
    return InvalidOption(option=f"APP ({name})", reason=reason)
