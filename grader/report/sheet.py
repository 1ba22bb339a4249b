"""CSV files from and for learning platforms: read in any dialect, written back in the same."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path

from grader.errors import GraderError
from grader.files import write_atomic
from grader.intake.textcodec import decode_text

_DECIMAL_COMMA = re.compile(r"\s*\d+,\d{1,2}\s*")


@dataclass
class Sheet:
    """A table with its dialect. All rows are as wide as the header.

    decimal: the sign in numbers, "." or ",".
    """

    header: list[str]
    rows: list[list[str]]
    delimiter: str = ","
    line_end: str = "\r\n"
    byte_order_mark: bool = False
    decimal: str = "."

    def write(self, path: Path) -> None:
        """Write the table in its dialect, as UTF-8."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, delimiter=self.delimiter, lineterminator=self.line_end)
        writer.writerow(self.header)
        writer.writerows(self.rows)
        write_atomic(path, ("\ufeff" if self.byte_order_mark else "") + buffer.getvalue())

    def number(self, value: float) -> str:
        """A score as the table writes numbers, with at most two decimals."""
        return f"{round(value, 2):.12g}".replace(".", self.decimal)


def read_sheet(path: Path) -> Sheet:
    """Read a CSV file that a learning platform exported, maybe saved again by a spreadsheet.

    Raises:
        GraderError: it can't be read or holds no table.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise GraderError(str(path), f"it can't be read ({error.strerror})", "give the path of the CSV file") from error
    text, encoding = decode_text(data)
    text = text.removeprefix("\ufeff")
    first = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=lambda sign: len(next(csv.reader([first], delimiter=sign), [])))
    try:
        lines = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if any(row)]
    except csv.Error as error:
        raise GraderError(str(path), f"it is no CSV table ({error})", "export it again as CSV") from error
    if len(lines) < 2 or len(lines[0]) < 2:
        raise GraderError(str(path), "it holds no table with a header and students", "export it again as CSV")
    width = max(map(len, lines))
    lines = [row + [""] * (width - len(row)) for row in lines]
    comma = any(_DECIMAL_COMMA.fullmatch(cell) for row in lines[1:] for cell in row)
    return Sheet(
        header=[cell.strip() for cell in lines[0]],
        rows=lines[1:],
        delimiter=delimiter,
        line_end="\r\n" if "\r\n" in text else "\n",
        byte_order_mark=encoding == "UTF-8 BOM",
        decimal="," if comma else ".",
    )


def as_number(cell: str) -> float | None:
    """The number in a cell, such as 100, 1,000.00 or 97,50; None where there is none."""
    plain = cell.replace(",", "." if _DECIMAL_COMMA.fullmatch(cell) else "")
    try:
        return float(plain)
    except ValueError:
        return None
