"""Over several processes `seriatim run --mpi` prints what it prints without, and refuses with one voice.

check_mpi.py --seriatim PROGRAM --launch "mpiexec OPTIONS -n" --captures FOLDER
"""

import argparse
import json
import pathlib
import shlex
import subprocess
import sys

# What may differ: what each process holds and has sent.
OF_THE_PROCESSES = {"bytes", "ranks"}


class Tool:
    def __init__(self, binary, launch):
        self.binary = binary
        self.launch = shlex.split(launch)

    def run(self, *arguments):
        return subprocess.run([self.binary, *map(str, arguments)], capture_output=True, text=True, timeout=120)

    def on_ranks(self, ranks, *arguments):
        return self.on_parts([(ranks, arguments)])

    def on_parts(self, parts):
        """Parts of one launch, each with its own number of ranks and arguments."""
        words = [self.launch[0], *self.launch[1:-1]]
        for number, (ranks, arguments) in enumerate(parts):
            words += ([":"] if number else []) + [self.launch[-1], str(ranks), self.binary, *map(str, arguments)]
        return subprocess.run(words, capture_output=True, text=True, timeout=120)


def check(condition, message):
    if not condition:
        sys.exit(f"check_mpi: {message}")


def check_same(tool, capture, ranks):
    alone = tool.run("run", capture, "--json")
    shared = tool.on_ranks(ranks, "run", capture, "--json", "--mpi", "--threads", 1)
    check(shared.returncode == alone.returncode == 0, f"{capture} on {ranks}: {shared.returncode} {shared.stderr}")
    due, got = json.loads(alone.stdout), json.loads(shared.stdout)
    check(due["digests"]["output"] and due.keys() | {"ranks"} == got.keys(), f"{capture}: {got.keys()}")
    for key in due.keys() - OF_THE_PROCESSES:
        check(got[key] == due[key], f"{capture} on {ranks}: {key} is {got[key]}, alone {due[key]}")
    check(len(got["ranks"]) == ranks and sum(one["tokens"] for one in got["ranks"]) == due["tokens"],
          f"{capture} on {ranks}: {got['ranks']}")
    most = max(one["tokens"] for one in got["ranks"])
    check(most <= due["tokens"] // ranks + 8, f"{capture} on {ranks}: one rank holds {most} of {due['tokens']} tokens")


def check_refusals(tool, captures):
    absent = captures[0].with_name("absent.safetensors")
    done = tool.on_parts([(2, ["run", captures[0], "--mpi"]), (1, ["run", absent, "--mpi"])])
    check(done.returncode == 2, f"a capture that one rank lacks: {done.returncode}")
    said = [line for line in done.stderr.splitlines() if line.startswith("seriatim: ")]
    check(len(said) == 1 and "rank 2: " in said[0], f"a capture that one rank lacks: {done.stderr}")

    done = tool.on_parts([(1, ["run", captures[0], "--mpi"]), (1, ["run", captures[0], "--mpi", "--margin", 0.5])])
    said = [line for line in done.stderr.splitlines() if line.startswith("seriatim: ")]
    check(done.returncode == 2 and len(said) == 1 and "margin: of run, rank 1" in said[0],
          f"another margin: {done.returncode} {done.stderr}")

    done = tool.on_ranks(2, "run", captures[0], "--mpi", "--device", "opencl")
    check(done.returncode == 2 and "device: " in done.stderr, f"a device: {done.returncode} {done.stderr}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seriatim", required=True)
    parser.add_argument("--launch", required=True)
    parser.add_argument("--captures", type=pathlib.Path, required=True)
    options = parser.parse_args()
    tool = Tool(options.seriatim, options.launch)
    captures = sorted(options.captures.glob("*.safetensors")) + [options.captures / "recorded" / "dsa_f32.safetensors"]
    check(len(captures) >= 5, f"only {len(captures)} captures in {options.captures}")
    for capture in captures:
        check_same(tool, capture, 3)
    for ranks in (1, 2, 4):
        check_same(tool, captures[0], ranks)
    check_refusals(tool, captures)
    print(f"check_mpi: {len(captures)} captures, 1 to 4 processes, 3 refusals")


if __name__ == "__main__":
    main()
