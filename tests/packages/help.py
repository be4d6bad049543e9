"""What the tool says of itself: every subcommand, and the options of each."""

import re
import subprocess

OPTION = re.compile(r"^  (-\S+)")
SUBCOMMAND = re.compile(r"^  ([a-z]\S*)")


def help_of(tool, words):
    """(options, subcommands) of `tool words... --help`; of an option with two names, the long one."""
    text = subprocess.run([tool, *words, "--help"], check=True, text=True, stdout=subprocess.PIPE).stdout
    options, subcommands, section = [], [], ""
    for line in text.splitlines():
        if re.match(r"^[A-Z].*:$", line):
            section = line
        elif section == "Options:" and OPTION.match(line):
            options.append(OPTION.match(line).group(1).split(",")[-1])
        elif section == "Subcommands:" and SUBCOMMAND.match(line):
            subcommands.append(SUBCOMMAND.match(line).group(1))
    return options, subcommands


def all_help(tool):
    """{words: (options, subcommands)} for the tool and every subcommand below it; words is a tuple."""
    found, pending = {}, [()]
    while pending:
        words = pending.pop()
        found[words] = help_of(tool, words)
        pending += [words + (name,) for name in found[words][1]]
    if not found[()][1] or not any(options for options, _ in found.values()):
        raise SystemExit("the tool's --help lists no subcommands or no options: was its form changed?")
    return found
