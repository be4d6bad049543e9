"""Ranks that are killed or stopped at any message end the others' calls in time, and nothing that was saved is lost.

check_faults.py --program fault_decode --launch "mpiexec OPTIONS -n" [--trials N] [--seed S]

Each trial decodes on some ranks until one of them gets SIGKILL or SIGSTOP at a message drawn at random; then another
number of ranks goes on from the last save. What both committed must be what one process that never stopped commits.
"""

import argparse
import os
import pathlib
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time

TOKENS = 256
TIMEOUT_MS = 2000
SLACK_MS = 6000  # of a machine that does other things too
MESSAGES = 2000  # a rank of two sends about that many


def fail(message):
    sys.exit(f"check_faults: {message}")


def digests_of(folder):
    lines = (folder / "digests").read_text().splitlines() if (folder / "digests").exists() else []
    return [tuple(line.split()) for line in lines]


class Launch:
    def __init__(self, options):
        self.program, self.words = options.program, shlex.split(options.launch)

    def start(self, ranks, folder, *fault):
        # Open MPI ends the whole job when a process dies unless it is told to go on.
        recovery = ["--enable-recovery"] if "--oversubscribe" in self.words else []
        words = [self.words[0], *recovery, *self.words[1:], ranks, self.program, folder, TOKENS, TIMEOUT_MS, *fault]
        return subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, start_new_session=True)

    def finish(self, ranks, folder):
        process = self.start(ranks, folder)
        said = process.communicate(timeout=120)[0]
        if process.returncode != 0:
            fail(f"{ranks} ranks without a fault ended with {process.returncode}: {said}")


def check_faulty_run(launch, ranks, folder, rank, message, how):
    """True where the fault struck before the work was done."""
    process = launch.start(ranks, folder, rank, message, how)
    others = [other for other in range(ranks) if other != rank]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        lost = [other for other in others if (folder / f"lost.{other}").exists()]
        if process.poll() is not None or len(lost) == len(others):
            break
        time.sleep(0.02)
    if how == "stop" and process.poll() is None:
        os.kill(int((folder / f"pid.{rank}").read_text()), signal.SIGKILL)
    try:
        said = process.communicate(timeout=60)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        fail(f"{how} of rank {rank} of {ranks} at message {message}: the launch does not end")
    lost = {other: folder / f"lost.{other}" for other in others if (folder / f"lost.{other}").exists()}
    if process.returncode == 0 and not lost:
        return False
    for other in others:
        if other not in lost:
            fail(f"{how} of rank {rank} of {ranks} at message {message}: rank {other} has no error: {said}")
        took, code, text = lost[other].read_text().split(maxsplit=2)
        if code != "PeerLost" or int(took) > TIMEOUT_MS + SLACK_MS:
            fail(f"{how} of rank {rank} at message {message}: rank {other} ended after {took} ms in {code} {text}")
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--launch", required=True)
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    launch, draw, struck = Launch(options), random.Random(options.seed), 0
    with tempfile.TemporaryDirectory() as scratch:
        whole = pathlib.Path(scratch) / "whole"
        whole.mkdir()
        launch.finish(1, whole)
        due = digests_of(whole)
        if len(due) != TOKENS or len(set(due)) != TOKENS:
            fail(f"one process committed {len(due)} tokens")
        for trial in range(options.trials):
            folder = pathlib.Path(scratch) / f"trial{trial}"
            folder.mkdir()
            ranks, after = draw.choice([(2, 3), (3, 2), (3, 1), (2, 1)])
            rank, message, how = draw.randrange(ranks), draw.randrange(MESSAGES), ["kill", "stop"][trial % 2]
            struck += check_faulty_run(launch, ranks, folder, rank, message, how)
            before = len(digests_of(folder))
            launch.finish(after, folder)
            got = digests_of(folder)
            # Tokens after the last save are decoded again, to the same digests.
            if set(got) != set(due) or got[-1] != due[-1] or len(got) - TOKENS > 16:
                fail(f"{how} of rank {rank} of {ranks} at message {message}, then {after} ranks: {before} tokens "
                     f"before, {len(got)} lines in all, {len(set(got) - set(due))} other than one process's")
            print(f"{how} of rank {rank} of {ranks} at message {message}: {before} tokens, then {after} ranks go on")
    if struck == 0:
        fail("no fault struck")
    print(f"check_faults: {options.trials} trials, {struck} of them struck")


if __name__ == "__main__":
    main()
