"""Blobs: arguments and results too large for a row, which refers to them instead.

    row      ["outlast:blob","9f0c…","args-5d2e41c7",104857612,"a3f1…"]   place, part, size, SHA-256
    blob     9f0c…/0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f.args-5d2e41c7     place/job.part

A blob's name contains its job's id, so that no text in a row can name another job's blob. Each blob
is written once, under a part that is never reused: a blob without a reference that is older than
any transaction will never be referred to.

The text of a call is always an object, so it cannot look like a reference. A result can be any
value: if its text starts like a reference, it is stored with an extra space that changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field

from .ids import entropy

REFERENCE_TAG = "outlast:blob"
REFERENCE_PREFIX = f'["{REFERENCE_TAG}",'

_NAMESPACE = r"[0-9a-f]{16}"
_PART = r"(?:args|result-[0-9]{1,19})-[0-9a-f]{8}"
_ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NAME = re.compile(rf"({_NAMESPACE})/({_ID})\.({_PART})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Blob:
    """A reference in place of arguments or a result. Two are equal if they hold the same text."""

    size: int  # in bytes
    sha256: str
    namespace: str = field(compare=False, repr=False)  # of its database
    part: str = field(compare=False, repr=False)  # arguments or result of its job

    def name(self, job: str) -> str:
        """The blob's name in the blob store."""
        return f"{self.namespace}/{job}.{self.part}"

    def holds(self, data: bytes) -> bool:
        """Whether this is the stored data."""
        return len(data) == self.size and hashlib.sha256(data).hexdigest() == self.sha256

    def as_text(self) -> str:
        """The reference as stored in the row."""
        reference = [REFERENCE_TAG, self.namespace, self.part, self.size, self.sha256]
        return json.dumps(reference, separators=(",", ":"))

    def as_json(self) -> dict[str, object]:
        """The reference as shown to callers."""
        return {REFERENCE_TAG: {"bytes": self.size, "sha256": self.sha256}}


def new_namespace() -> str:
    """A database's own folder: two databases that share a blob store stay apart."""
    return entropy(8).hex()


def args_blob(namespace: str, data: bytes) -> Blob:
    return _new(namespace, "args", data)


def result_blob(namespace: str, fence: int, data: bytes) -> Blob:
    return _new(namespace, f"result-{fence}", data)


def _new(namespace: str, what: str, data: bytes) -> Blob:
    digest = hashlib.sha256(data).hexdigest()
    return Blob(len(data), digest, namespace, f"{what}-{entropy(4).hex()}")


def blob_of_value(value: object) -> Blob | None:
    """The blob that a row's value refers to, if it is a reference."""
    match value:
        case [str(word), str(namespace), str(part), int(size), str(digest)] if (
            word == REFERENCE_TAG
        ):
            if re.fullmatch(_NAMESPACE, namespace, re.ASCII) and re.fullmatch(
                _PART, part, re.ASCII
            ):
                return Blob(size, digest, namespace, part)
    return None


def parse_reference(text: str | None) -> Blob | None:
    """The blob that a row's text refers to, if it is a reference."""
    if text is None or not text.startswith(REFERENCE_PREFIX):
        return None
    try:
        return blob_of_value(json.loads(text))
    except ValueError:
        return None


def escape_reference(text: str) -> str:
    """A result's text, changed if it could be read as a reference."""
    return f"[ {text[1:]}" if text.startswith(REFERENCE_PREFIX) else text


def parse_name(name: str) -> tuple[str, str, str] | None:
    """Namespace, job and part of a blob's name; None if the name is not one of Outlast's."""
    found = _NAME.fullmatch(name)
    return (found[1], found[2], found[3]) if found else None


def same_text(requested: str, existing: str) -> bool:
    """Whether two texts are equal, where either may be stored by reference."""
    one, other = parse_reference(requested), parse_reference(existing)
    if one is None or other is None:
        one = one or args_blob("", requested.encode())
        other = other or args_blob("", existing.encode())
    return one == other
