"""Finding the program that defines the tasks: `module:attr`, importable from where one stands."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..model.errors import InvalidOption

if TYPE_CHECKING:
    from ..client import Outlast


def find_app(name: str, url: str | None, schema: str | None, blobs: str | None = None) -> Outlast:
    """The app, with its jobs where the command line says, if it says anything."""
    # First of all for apps that say `Outlast()`: they read this when they are imported.
    said = {"OUTLAST_URL": url, "OUTLAST_SCHEMA": schema, "OUTLAST_BLOBS": blobs}
    os.environ.update({variable: value for variable, value in said.items() if value})
    app = load_app(name)
    if url or schema or blobs:
        app.move(url, schema, blobs)
    return app


def load_app(name: str) -> Outlast:
    module_name, colon, path = name.partition(":")
    if not module_name or (colon and not path):
        raise _refused(name, "is written module:attr, as in shop.tasks:ol")
    if module_name.endswith(".py") or os.sep in module_name:
        suggestion = module_name.removesuffix(".py").strip("./").replace(os.sep, ".")
        raise _refused(name, f"is a module, not a file: write {suggestion}{colon}{path}")
    module = _import(name, module_name)
    return _attribute(name, module, path) if path else _only_app(name, module)


def _import(name: str, module_name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise _refused(
                name, f"names no module: {missing!r} is not in {here} and not installed"
            ) from error
        raise _refused(
            name, f"cannot be imported: it needs the module {missing!r}, which is not installed"
        ) from error
    except Exception as error:
        raise _refused(name, f"cannot be imported: {_brief(error)}") from error


def _attribute(name: str, module: ModuleType, path: str) -> Outlast:
    found: Any = module
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise _refused(name, f"has no {path!r}: {_what_there_is(module)}") from None
    from ..client import Outlast

    if not isinstance(found, Outlast):
        raise _refused(
            name, f"is of type {type(found).__name__}, not an Outlast: {_what_there_is(module)}"
        )
    return found


def _only_app(name: str, module: ModuleType) -> Outlast:
    apps = _apps(module)
    if len({id(app) for app in apps.values()}) != 1:
        raise _refused(name, f"does not say which Outlast: {_what_there_is(module)}")
    return next(iter(apps.values()))


def _apps(module: ModuleType) -> dict[str, Outlast]:
    from ..client import Outlast

    return {name: value for name, value in vars(module).items() if isinstance(value, Outlast)}


def _what_there_is(module: ModuleType) -> str:
    apps = [f"{module.__name__}:{name}" for name in _apps(module)]
    return f"there is {', '.join(apps)}" if apps else f"{module.__name__} makes no Outlast(…)"


def _brief(error: Exception) -> str:
    """What went wrong in the user's code, and where."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "importlib" not in frame.filename]
    where = f" ({own[-1].filename}, line {own[-1].lineno})" if len(own) > 1 else ""
    return f"{type(error).__name__}: {error}{where}"


def _refused(name: str, reason: str) -> InvalidOption:
    return InvalidOption(option=f"APP ({name})", reason=reason)
