"""Bytes to text: which encoding a student's editor saved a notebook in.

A wrong guess is worse than a refusal only where it changes code, so the order is strict: byte order
marks, NUL patterns, strict UTF-8, UTF-8 with few broken bytes, GB18030 where the bytes come in
Chinese pairs, and last the Western code page in which every byte is a character.
"""

from __future__ import annotations

import codecs
import re

_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16: its mark begins with UTF-16's
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_PAIR = re.compile(rb"[\x81-\xfe][\xa1-\xfe]")
_HIGH = re.compile(rb"[\x80-\xff]")
_SAMPLE = 1 << 20  # bytes looked at when the pattern of high bytes is judged


def decode_text(data: bytes) -> tuple[str, str | None]:
    """Decode ``data``; return the text and the name of the encoding when it is not plain UTF-8."""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            label = "UTF-8 BOM" if encoding == "utf-8" else encoding.upper()
            return data[len(bom) :].decode(encoding, "replace"), label
    wide = _wide_encoding(data[:4])
    if wide:
        return data.decode(wide, "replace"), wide.upper()
    try:
        return data.decode("utf-8"), None
    except UnicodeDecodeError:
        return _decode_other(data)


def _wide_encoding(head: bytes) -> str | None:
    """UTF-16 or UTF-32 without a mark: JSON begins with ASCII, so the NULs tell (RFC 4627)."""
    pattern = tuple(byte != 0 for byte in head)
    return {
        (True, False, False, False): "utf-32-le",
        (False, False, False, True): "utf-32-be",
        (True, False, True, False): "utf-16-le",
        (False, True, False, True): "utf-16-be",
    }.get(pattern)


def _decode_other(data: bytes) -> tuple[str, str]:
    """Text that is not UTF-8: mostly UTF-8, GB18030, or a Western code page."""
    repaired = data.decode("utf-8", "replace")
    broken = repaired.count("\ufffd")
    good = sum(1 for char in repaired if char > "\x7f") - broken
    if broken * 4 <= good:  # GBK read as UTF-8 gives far more broken characters than good ones
        return repaired, "UTF-8（有坏字节）"
    sample = data[:_SAMPLE]
    high = len(_HIGH.findall(sample))
    if 2 * len(_PAIR.findall(sample)) >= 0.6 * high:  # Western letters stand alone between ASCII ones
        try:
            return data.decode("gb18030"), "GB18030"
        except UnicodeDecodeError as error:
            if error.start > len(data) * 0.9 or len(data) - error.start < 4:  # cut off inside a character
                return data.decode("gb18030", "replace"), "GB18030"
            replaced = data.decode("gb18030", "replace")
            if replaced.count("\ufffd") * 20 < high:
                return replaced, "GB18030（有坏字节）"
    return data.decode("cp1252", "replace"), "Windows-1252"


def has_lone_surrogate(text: str) -> bool:
    """True where ``text`` can't be written as UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def clean_characters(text: str) -> str:
    """Replace lone surrogates, drop NULs: neither can be stored, parsed or shown."""
    if has_lone_surrogate(text):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\0", "")
