"""Runs in a process of its own: `python -c <this file> REQUEST REPLY`. See probe.py; standard library and IPython only.

It is passed as text so that the folder it lies in is not on sys.path and can't shadow what a notebook imports.
"""

import json
import sys
from pathlib import Path


def serve(request: Path, reply: Path) -> None:
    """Run every list of cells in a fresh namespace and write what came of each cell."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    shell.showtraceback = lambda *args, **kwargs: None
    shell.showsyntaxerror = lambda *args, **kwargs: None
    shell.enable_gui = lambda *args, **kwargs: None
    outcomes = []
    for cells in json.loads(request.read_text("utf-8")):
        shell.reset(new_session=True)
        # With history, since IPython sees a semicolon at a cell's end only there.
        outcomes.append({name: outcome_of(shell.run_cell(source, store_history=True)) for name, source in cells})
    reply.write_text(json.dumps(outcomes), "utf-8")


def outcome_of(result) -> dict:
    """The fields of probe.Outcome, from IPython's ExecutionResult."""
    error = result.error_before_exec or result.error_in_exec
    if error is not None:
        text = (str(error).strip().splitlines() or [failing_line(error)])[0]
        return {"error": f"{type(error).__name__}: {text}"[:300]}
    value = result.result
    if value is None:
        return {}
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return {"type_name": name, "number": value if kind in (int, float) else None}


def failing_line(error) -> str:
    """The innermost line of a cell that raised, for an error without words such as that of a bare assert."""
    import linecache
    import traceback

    for frame, number in reversed(list(traceback.walk_tb(error.__traceback__))):
        if frame.f_code.co_filename.startswith("<ipython-input"):
            return linecache.getline(frame.f_code.co_filename, number).strip()
    return ""


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]))
