"""Text for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Text in which control characters, which would steer a terminal, show as �."""
    return "".join(c if c.isprintable() or c == " " else "�" for c in text)
