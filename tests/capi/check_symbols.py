"""Holds what the shared library exports against the committed list, and the list against the headers.

    check_symbols.py --library FILE --soname NAME --list capi/symbols.txt --headers HEADER.. [--write]
"""

import argparse
import pathlib
import re
import subprocess
import sys


def exported(library):
    """What a program can link against, without the version node's own name."""
    text = subprocess.run(["nm", "-D", "--defined-only", library], check=True, text=True, stdout=subprocess.PIPE).stdout
    symbols = (line.split() for line in text.splitlines())
    return sorted(f"{kind} {name}" for _, kind, name in symbols if kind != "A")


def declared(headers):
    text = "".join(re.sub(r"//[^\n]*", "", header.read_text(encoding="utf-8")) for header in headers)
    return sorted(re.findall(r"SERIATIM_API\s+[\w\s*]*?\b(seriatim_\w+)\(", text))


def soname(library):
    text = subprocess.run(["readelf", "-d", library], check=True, text=True, stdout=subprocess.PIPE).stdout
    return re.search(r"\(SONAME\).*\[(.*)\]", text).group(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--list", type=pathlib.Path, required=True)
    parser.add_argument("--headers", type=pathlib.Path, nargs="+", required=True)
    parser.add_argument("--soname", required=True)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()

    found = exported(arguments.library)
    if arguments.write:
        arguments.list.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
    listed = arguments.list.read_text(encoding="utf-8").splitlines()
    faults = [f"exported but not in the list: {line}" for line in sorted(set(found) - set(listed))]
    faults += [f"in the list but not exported: {line}" for line in sorted(set(listed) - set(found))]
    names = {line.split()[1].split("@")[0] for line in listed}
    faults += [f"in the list or the headers alone: {name}" for name in sorted(names ^ set(declared(arguments.headers)))]
    if soname(arguments.library) != arguments.soname:
        faults.append(f"its soname is {soname(arguments.library)}, not {arguments.soname}")
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(found)} symbols checked, {len(faults)} faults")
    return 1 if faults or not found else 0


if __name__ == "__main__":
    sys.exit(main())
