"""Execution: a rebuilt notebook goes in, an executed one with a verdict for each test comes out."""

from __future__ import annotations

from grader.execution.run import execute, warm_up

__all__ = ["execute", "warm_up"]
