"""Changes where an ELF program looks for its libraries, in the file: the run
path that the linker wrote names folders of the machine that built it."""

import struct

LOAD, DYNAMIC = 1, 2  # program headers
NULL, STRING_TABLE, RPATH, RUNPATH = 0, 5, 15, 29  # dynamic entries


class NotElf(ValueError):
    pass


def program_headers(data):
    """(type, offset, address, bytes in the file) of each."""
    if data[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
        raise NotElf("not a 64-bit little-endian ELF file")
    table, = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for index in range(count):
        kind, _, offset, address, _, length = struct.unpack_from(
            "<IIQQQQ", data, table + index * size)
        yield kind, offset, address, length


def dynamic_entries(data):
    """(tag, value, offset of the entry)"""
    for kind, offset, _, length in program_headers(data):
        if kind != DYNAMIC:
            continue
        for at in range(offset, offset + length, 16):
            tag, value = struct.unpack_from("<qQ", data, at)
            if tag == NULL:
                return
            yield tag, value, at


def file_offset(data, address):
    for kind, offset, begin, length in program_headers(data):
        if kind == LOAD and begin <= address < begin + length:
            return offset + address - begin
    raise NotElf(f"no segment has the address {address:#x}")


def places(data):
    """(offset, text) of the run path's strings."""
    tags = [(tag, value) for tag, value, _ in dynamic_entries(data)]
    strings = [value for tag, value in tags if tag == STRING_TABLE]
    found = []
    for tag, value in tags:
        if tag in (RPATH, RUNPATH):
            at = file_offset(data, strings[0]) + value
            found.append((at, data[at:data.index(b"\0", at)].decode()))
    return found


def run_path(path):
    """The run path of a program, or None."""
    found = places(path.read_bytes())
    return found[0][1] if found else None


def set_run_path(path, text):
    """The new one must not be longer: it takes the place of the old one. A
    program without any is left as it is."""
    data = bytearray(path.read_bytes())
    for at, old in places(data):
        if len(text) > len(old):
            raise ValueError(f"{path}: {text!r} is longer than {old!r}")
        data[at:at + len(old)] = text.encode().ljust(len(old), b"\0")
    path.write_bytes(data)
