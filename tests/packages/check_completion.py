"""Runs the completions in the shells they are for: after every subcommand they must offer what --help lists.

    check_completion.py --seriatim BIN --completions packaging/completion

bash must be there; zsh and fish are tested where they are installed.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

from help import all_help

BASH = """source "$FILE"
COMP_WORDS=("$@" "") COMP_CWORD=$#
_seriatim
printf '%s\\n' "${COMPREPLY[@]}"
"""
BASH_PREFIX = """source "$FILE"
COMP_WORDS=(seriatim --v) COMP_CWORD=1
_seriatim
printf '%s\\n' "${COMPREPLY[@]}"
"""
# zsh completes at a terminal alone; compadd, _files and the words stand in for it.
ZSH = """compadd() { print -l -- ${(P)2} }
_files() { }
words=("$@" "") CURRENT=$(($# + 1))
source "$FILE"
"""
FISH = """source "$FILE"
complete -C "$argv " | string split -f1 \\t
"""


def run_shell(command, file, folder):
    environment = dict(os.environ, FILE=str(file), PATH=f"{folder}:{os.environ['PATH']}", HOME=str(folder))
    done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.stdout.splitlines()


def offers(shell, words, completions, folder):
    if shell == "bash":
        return run_shell(["bash", "--norc", "-c", BASH, "bash", *words], completions / "seriatim.bash", folder)
    if shell == "zsh":
        return run_shell(["zsh", "-f", "-c", ZSH, "zsh", *words], completions / "_seriatim", folder)
    return run_shell(["fish", "--no-config", "-c", FISH, *words], completions / "seriatim.fish", folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seriatim", type=pathlib.Path, required=True)
    parser.add_argument("--completions", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    tool, completions = arguments.seriatim.resolve(), arguments.completions.resolve()

    shells = ["bash"] + [shell for shell in ("zsh", "fish") if shutil.which(shell)]
    faults, checked = [], 0
    for shell in shells:
        for words, (options, subcommands) in all_help(str(tool)).items():
            offered = offers(shell, ("seriatim",) + words, completions, tool.parent)
            checked += len(options) + len(subcommands)
            missing = sorted(set(options + subcommands) - set(offered))
            faults += [f"{shell}: `seriatim {' '.join(words)}` does not offer {name}" for name in missing]
    narrowed = run_shell(["bash", "--norc", "-c", BASH_PREFIX], completions / "seriatim.bash", tool.parent)
    if narrowed != ["--version"]:
        faults.append(f"bash: `seriatim --v` offers {narrowed}")
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{', '.join(shells)}: {checked} words checked, {len(faults)} faults")
    return 1 if faults or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
