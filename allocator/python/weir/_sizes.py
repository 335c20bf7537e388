"""Sizes as people write them."""

from __future__ import annotations

import re

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", start=1):
    _UNITS[f"{_letter}B"] = 1000**_power
    _UNITS[f"{_letter}iB"] = 1024**_power


def parse(text: str) -> int:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?i?B?)\s*", text)
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"'{text}' is no size; write for example 24GiB or 512MiB")
    return int(float(match[1]) * _UNITS[match[2]])


def show(size: float) -> str:
    for unit, divisor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size >= divisor:
            return f"{size / divisor:.2f} {unit}"
    return f"{size:.0f} bytes"
