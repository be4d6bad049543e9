"""Holds the manual page to the tool's own --help: both must name the same subcommands, and the same options in each.
The page's version is that of the tool.

    check_manual.py --seriatim BIN --manual packaging/seriatim.1
"""

import argparse
import pathlib
import re
import subprocess
import sys

from help import all_help


def options_of(text):
    """The long options that have a paragraph of their own in a section."""
    tagged = re.findall(r"^\.TP\n(\.B.*)$", text, re.MULTILINE)
    return sorted(name for line in tagged for name in re.findall(r"--[a-z][a-z-]*", line.replace("\\-", "-")))


def manual_sections(page):
    """{words: options}, of the page's OPTIONS and of each .SS below SUBCOMMANDS."""
    sections = dict(re.findall(r"^\.SH (.+)\n((?:(?!\.SH ).*\n?)*)", page, re.MULTILINE))
    found = {(): options_of(sections["OPTIONS"])}
    for name, text in re.findall(r"^\.SS (.+)\n((?:(?!\.SS ).*\n?)*)", sections["SUBCOMMANDS"], re.MULTILINE):
        found[tuple(name.split())] = options_of(text)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seriatim", required=True)
    parser.add_argument("--manual", type=pathlib.Path, required=True)
    arguments = parser.parse_args()

    told = {words: sorted(name for name in options if name != "--help" or not words)
            for words, (options, _) in all_help(arguments.seriatim).items()}
    page = arguments.manual.read_text(encoding="utf-8")
    written = manual_sections(page)
    version = subprocess.run([arguments.seriatim, "--version"], text=True, capture_output=True, check=True).stdout
    version = re.search(r"\d+\.\d+", version).group()
    faults = [] if f'"seriatim {version}"' in page.splitlines()[1] else [f".TH does not say seriatim {version}"]
    for words in sorted(told.keys() | written.keys()):
        name = " ".join(("seriatim",) + words)
        if words not in written:
            faults.append(f"`{name}` has no .SS {' '.join(words)}")
        elif words not in told:
            faults.append(f".SS {' '.join(words)}: there is no `{name}`")
        else:
            faults += [f"{name}: {option} has no .TP" for option in sorted(set(told[words]) - set(written[words]))]
            faults += [f"{name}: the tool has no {option}" for option in sorted(set(written[words]) - set(told[words]))]
    for fault in faults:
        print(f"{arguments.manual.name}: {fault}", file=sys.stderr)
    print(f"{len(told)} commands, {sum(map(len, told.values()))} options checked, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
