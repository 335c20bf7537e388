"""What a shared library asks of others, read from its ELF dynamic section.

Reads 64-bit little-endian files (x86-64, aarch64) without binutils. Only the parts that the
dynamic loader uses are read, so a library of several hundred megabytes costs milliseconds.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Union

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB, _DT_SYMTAB, _DT_SONAME = 1, 5, 6, 14
_DT_HASH, _DT_GNU_HASH = 4, 0x6FFFFEF5
_DT_VERSYM, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF
_SYMBOL_BYTES = 24
# Of a symbol's version index; the bit above says that the version is hidden.
_VERSION_MASK = 0x7FFF


@dataclass(frozen=True)
class Symbol:
    """A symbol that another library must have; version and library are "" where it has none."""

    name: str
    version: str = ""
    library: str = ""


@dataclass
class Imports:
    """What one shared library asks of others."""

    needed: list[str] = field(default_factory=list)
    symbols: list[Symbol] = field(default_factory=list)


class _Image:
    """The bytes of a file by virtual address."""

    def __init__(self, data: Union[mmap.mmap, bytes]) -> None:
        self._data = data
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a 64-bit little-endian ELF file")
        (offset,) = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        self._loads: list[tuple[int, int, int]] = []
        self.dynamic: list[tuple[int, int]] = []
        for index in range(count):
            header = struct.unpack_from("<IIQQQQ", data, offset + index * size)
            kind, _, at, address, _, bytes_ = header
            if kind == _PT_LOAD:
                self._loads.append((address, at, bytes_))
            elif kind == _PT_DYNAMIC:
                self.dynamic = list(struct.iter_unpack("<qQ", data[at : at + bytes_ // 16 * 16]))

    def tag(self, wanted: int) -> int:
        return next((value for tag, value in self.dynamic if tag == wanted), 0)

    def offset(self, address: int) -> int:
        for start, at, bytes_ in self._loads:
            if start <= address < start + bytes_:
                return address - start + at
        raise ValueError(f"address {address:#x} is in no segment of the file")

    def unpack(self, layout: str, address: int) -> tuple[int, ...]:
        return struct.unpack_from(layout, self._data, self.offset(address))

    def text(self, address: int) -> str:
        start = self.offset(address)
        end = self._data.find(b"\0", start)
        if end < 0:
            raise ValueError("a name has no end")
        return self._data[start:end].decode()


def _symbol_count(image: _Image) -> int:
    """How many symbols to look at: with a GNU hash table, those before the hashed ones, among which
    are all that are undefined. A library that exports nothing tells no number and counts as if it
    imported nothing."""
    if address := image.tag(_DT_GNU_HASH):
        return image.unpack("<II", address)[1]
    if address := image.tag(_DT_HASH):
        return image.unpack("<II", address)[1]
    raise ValueError("the file has no symbol hash table")


def _versions(image: _Image, strings: int) -> dict[int, tuple[str, str]]:
    """(version, library) by version index."""
    found: dict[int, tuple[str, str]] = {}
    address = image.tag(_DT_VERNEED)
    for _ in range(image.tag(_DT_VERNEEDNUM) if address else 0):
        _, count, library, first, following = image.unpack("<HHIII", address)
        entry = address + first
        for _ in range(count):
            _, _, index, name, step = image.unpack("<IHHII", entry)
            pair = image.text(strings + name), image.text(strings + library)
            found[index & _VERSION_MASK] = pair
            entry += step
        address += following
    return found


def _read(image: _Image) -> Imports:
    strings = image.tag(_DT_STRTAB)
    imports = Imports([image.text(strings + v) for t, v in image.dynamic if t == _DT_NEEDED])
    versions = _versions(image, strings)
    table, version_table = image.tag(_DT_SYMTAB), image.tag(_DT_VERSYM)
    for index in range(1, _symbol_count(image)):
        name, _, _, section = image.unpack("<IBBH", table + index * _SYMBOL_BYTES)
        if section != 0 or name == 0:
            continue
        version, library = "", ""
        if version_table:
            wanted = image.unpack("<H", version_table + index * 2)[0] & _VERSION_MASK
            version, library = versions.get(wanted, ("", ""))
        imports.symbols.append(Symbol(image.text(strings + name), version, library))
    return imports


def read_imports(path: Path) -> Imports:
    """Raises ValueError, naming the file, if it is not what is expected; OSError if unreadable."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _read(_Image(data))
        except (struct.error, UnicodeDecodeError, ValueError) as error:
            raise ValueError(f"{path}: cannot read its dynamic symbols: {error}") from error
