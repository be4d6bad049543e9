"""Calls llama_run and `seriatim check`: what compare.py, the benchmark and the tests share."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
UNITS = {"minimax-m3": 128, "deepseek4": 4}  # tokens of one unit of a family's budget, where it is not a token


@dataclass
class Result:
    answer: dict  # the JSON line
    logits: np.ndarray | None = None  # [steps + 1, sequences, vocabulary]
    log: str = ""

    @property
    def counters(self):
        """By name; "row entries" are those that attention has read of those "offered"."""
        line = self.answer["counters"].removeprefix("seriatim: ")
        line = line.replace(" of ", ", offered ").replace(" offered,", ",")
        return {name: int(value) for name, value in (part.rsplit(" ", 1) for part in line.split(", ") if part)}


class Failed(Exception):
    pass


def make_model(family, path, *, budget=None, tiny=True, **options):
    """A model file, made unless it is there; `budget` in tokens."""
    path = Path(path)
    if path.exists():
        return path
    command = [sys.executable, HERE / "make_model.py", family, f"{path}.part"]
    if tiny:
        command.append("--tiny")
    if budget is not None:
        command += ["--budget", str(budget // UNITS.get(family, 1))]
    for name, value in options.items():
        command += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    subprocess.run(command, check=True)
    os.replace(f"{path}.part", path)
    return path


# Threads that wait for the next node spin, which on a machine that others use too takes seconds.
PATIENT = {"OMP_WAIT_POLICY": "passive"}


def run(program, model, *flags, backend=None, logits=None, environment=PATIENT, **options):
    """llama_run on a model; options are its own, `cache_type` for --cache-type."""
    command = [program, model, *flags]
    if logits is not None:
        command += ["--logits", logits]
    if backend is not None:
        command += ["--backend", backend]
    for name, value in options.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env={**os.environ, **environment})
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stderr[-4000:]}")
    result = Result(json.loads(done.stdout.strip().splitlines()[-1]), log=done.stderr)
    if logits is not None:
        result.logits = np.load(logits)
    return result


def judge(program, dump, rule):
    """The verdict of `seriatim check` on a dump."""
    done = subprocess.run([program, "check", dump, "--rule", rule, "--json", "-", "--findings", "1000000"],
                          capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise Failed(f"seriatim check {dump}: {done.stderr}")
    return json.loads(done.stdout)


def faults(verdict):
    return {name: count["faults"] for name, count in verdict["counts"].items() if count["faults"]}


def read_dump(path):
    """Its tensors by name."""
    data = Path(path).read_bytes()
    length = int.from_bytes(data[:8], "little")
    kinds = {"I32": np.int32, "F32": np.float32}
    return {name: np.frombuffer(data[8 + length:][slice(*entry["data_offsets"])],
                                kinds[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in json.loads(data[8:8 + length]).items() if name != "__metadata__"}


def distance(a, b):
    """The largest difference of logits, relative to the largest of them."""
    return float(np.abs(a - b).max() / np.abs(a).max())
