"""Intake: any bytes, any name, any layout → submissions with a notebook or a plain reason."""

from __future__ import annotations

from grader.intake.collect import collect
from grader.intake.decode import Decoded, decode_notebook

__all__ = ["Decoded", "collect", "decode_notebook"]
