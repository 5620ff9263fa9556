"""Sentences for the user that are no errors, each with the kind of fact that it states."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """What a note is about, where somebody sorts by it."""

    OTHER = "other"
    WHOLE_CLIP = "one push is the whole clip"
    REMOVED = "channels that were removed"
    REFUSED = "what `build` refuses"


class Note(str):
    """A text and its kind."""

    kind: Kind

    def __new__(cls, text: str, kind: Kind = Kind.OTHER) -> Note:
        note = super().__new__(cls, text)
        note.kind = kind
        return note


def kind_of(note: str) -> Kind:
    """The kind of a note; plain text has none of its own."""
    return note.kind if isinstance(note, Note) else Kind.OTHER
