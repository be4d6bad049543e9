"""Runs what README.md tells a user to type, and holds C and C++ of the pages against the examples that are compiled.

    check_readme.py --root DIR --seriatim BIN

In the ```sh blocks: a line that starts with build/cli/seriatim is run in a copy of the shipped captures and must end
with 0, or with N where its comment says "exit status N"; a line that starts with scripts/ must name a script that can
be run (scripts/clean-room runs those). Each ```cpp or ```c block of README.md and docs/ must stand word for word in a
file of examples/.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
STATUS = re.compile(r"exit status (\d+)")
HIDES_STATUS = re.compile(r"[|&;]")
TOOL = "build/cli/seriatim "


def command_fault(line, root, tool, folder):
    command, _, comment = (part.strip() for part in line.partition(" #"))
    if command.startswith(TOOL):
        if HIDES_STATUS.search(command):
            return f"`{command}` hides the tool's exit status; say \"exit status N\" in a comment"
        done = subprocess.run(tool + command[len(TOOL) - 1:], shell=True, cwd=folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        stated = STATUS.search(comment)
        if done.returncode != int(stated.group(1) if stated else 0):
            return f"`{command}` ended with {done.returncode}:\n{done.stdout}"
        return None
    if command.startswith(("scripts/", ".ci/")):
        return None if os.access(root / command.split()[0], os.X_OK) else f"`{command}` cannot be run"
    return None


def example_fault(block, root, page, suffix):
    if any(block in path.read_text(encoding="utf-8") for path in (root / "examples").glob(f"*.{suffix}")):
        return None
    return f"no file of examples/ holds this block of {page.relative_to(root)}:\n{block}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--seriatim", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    root, tool = arguments.root.resolve(), str(arguments.seriatim.resolve())

    faults, commands, blocks = [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(root / "tests" / "fixtures", pathlib.Path(folder) / "tests" / "fixtures")
        for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
            for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
                if language == "sh" and page.name == "README.md":
                    for line in filter(None, map(str.strip, text.splitlines())):
                        commands += 1
                        faults.append(command_fault(line, root, tool, folder))
                elif language in ("c", "cpp"):
                    blocks += 1
                    faults.append(example_fault(text, root, page, {"c": "c", "cpp": "cc"}[language]))
    faults = [fault for fault in faults if fault]
    for fault in faults:
        print(f"check_readme: {fault}", file=sys.stderr)
    print(f"check_readme: {commands} commands and {blocks} blocks of code checked, {len(faults)} faults")
    return 1 if faults or commands == 0 or blocks == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
