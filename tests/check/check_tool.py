"""What `seriatim check` promises at its edge: verdicts, exit codes, its files, and that its JSON keeps to the schema.

    check_tool.py --seriatim BIN --captures DIR --schema FILE
"""

import argparse
import json
import os
import pathlib
import select
import struct
import subprocess
import sys
import tempfile
import zlib

import jsonschema
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
from safetensors_file import Tensor, load, save  # noqa: E402
from selection import select_row  # noqa: E402

PROMISES = ["range", "duplicate", "width", "expansion", "tail", "membership", "tie", "order", "dense", "repeat",
            "arithmetic"]
GROUP, BUDGET, QUERIES = 4, 64, 40
FAULTS = []
CHECKS = 0


def expect(condition, what):
    global CHECKS
    CHECKS += 1
    if not condition:
        FAULTS.append(what)


class Tool:
    def __init__(self, binary, schema, folder):
        self.binary, self.schema, self.folder = binary, schema, folder

    def run(self, *arguments, **options):
        return subprocess.run([self.binary, "check", *map(str, arguments)], text=True, capture_output=True, check=False,
                              **options)

    def judge(self, what, *arguments):
        """The JSON of a run that must judge; it keeps to the schema and agrees with the exit code and the table."""
        path = self.folder / "verdict.json"
        done = self.run(*arguments, "--json", path)
        expect(done.returncode in (0, 1) and done.stderr == "", f"{what}: exit {done.returncode}, {done.stderr!r}")
        report = json.loads(path.read_text(encoding="utf-8"))
        jsonschema.Draft7Validator(self.schema).validate(report)
        expect(report["conforms"] == (done.returncode == 0),
               f"{what}: conforms {report['conforms']} and exit {done.returncode}")
        expect(report["conforms"] == (report["faulty_rows"] == 0), f"{what}: {report['faulty_rows']} faulty rows")
        expect(report["conforms"] == all(count["faults"] == 0 for count in report["counts"].values()),
               f"{what}: counts do not fit")
        expect(("does not conform" in done.stdout) != report["conforms"], f"{what}: the table says otherwise")
        expect("\033" not in done.stdout, f"{what}: colours in a pipe")
        return report

    def refused(self, what, *arguments, naming):
        done = self.run(*arguments)
        lines = done.stderr.splitlines()
        expect(done.returncode == 2, f"{what}: exit {done.returncode}, not 2")
        expect(len(lines) == 1 and naming in lines[0], f"{what}: stderr is {done.stderr!r}, without {naming!r}")
        expect(done.stdout == "", f"{what}: prints {done.stdout!r}")


def right_dump(seed=1):
    """Rows of the oracle, with padding behind."""
    rng = np.random.default_rng(seed)
    visible = np.sort(rng.integers(1, 400, QUERIES))
    visible[:4] = (0, 1, BUDGET + GROUP - 1, BUDGET + GROUP)
    visible.sort()
    scores = rng.integers(0, 9, (QUERIES, 100)).astype("<f4") / 4
    rows = np.full((QUERIES, BUDGET + GROUP + 3), -1, "<i4")
    for q, n in enumerate(visible):
        row = select_row(scores[q, : n // GROUP], int(n), GROUP, BUDGET)
        rows[q, : len(row)] = row
    return rows, visible.astype("<i8"), scores


def write(path, rows, visible, scores=None, **metadata):
    tensors = {"rows": Tensor("I64" if rows.dtype.itemsize == 8 else "I32", rows),
               "visible": Tensor("I64" if visible.dtype.itemsize == 8 else "I32", visible)}
    if scores is not None:
        tensors["scores"] = Tensor("F32", scores)
    save(path, tensors, {"seriatim": "selection/1", "group_tokens": str(GROUP), "budget_tokens": str(BUDGET),
                         **metadata})
    return path


def named(report):
    return sorted({finding["promise"] for finding in report["findings"]})


def check_verdicts(tool, folder):
    rows, visible, scores = right_dump()
    path = folder / "dump.safetensors"
    for integers in ("<i4", "<i8"):
        for given in (scores, None):
            report = tool.judge("right rows", write(path, rows.astype(integers), visible.astype(integers), given,
                                                    engine="oracle"))
            expect(report["conforms"] and report["engine"] == "oracle" and report["rows"] == QUERIES,
                   "right rows do not conform")
            expect("not_judged" in report["counts"]["membership"] or given is not None,
                   "membership was judged without scores")
    q = QUERIES - 1  # above the budget
    faults = {
        "range": lambda row: row.__setitem__(5, 100_000),
        "duplicate": lambda row: row.__setitem__(5, row[4]),
        "order": lambda row: row.__setitem__(slice(0, 8), np.roll(row[0:8], 4)),
    }
    for promise, fault in faults.items():
        wrong = rows.copy()
        fault(wrong[q])
        report = tool.judge(promise, write(path, wrong, visible, scores))
        expect(named(report) == [promise], f"{promise} is named {named(report)}")
        expect(report["findings"][0]["row"] == q and report["counts"][promise]["faults"] == 1,
               f"{promise}: in another row")
    report = tool.judge("order, by another rule", path, "--rule", "arrival")
    expect(report["conforms"] and report["rule"] == "arrival", "arrival does not relax the order")
    wrong = rows.copy()
    wrong[:, 0] = 100_000
    report = tool.judge("many faults", write(path, wrong, visible, scores), "--findings", 3)
    expect(len(report["findings"]) == 3 and report["counts"]["range"]["faults"] == QUERIES,
           "--findings does not bound them")
    one, two = (tool.run(path, "--threads", threads, "--json", "-").stdout for threads in (1, 4))
    expect(one == two and json.loads(one)["rows"] == QUERIES, "threads decide the verdict")


def check_captures(tool, captures, folder):
    for capture in captures:
        own = tool.judge(capture.name, capture)
        expect(set(named(own)) <= {"tie"}, f"{capture.name}: Transformers breaks {named(own)}")
        expect(own["arithmetic"]["rows"] == own["rows"] and own["arithmetic"]["relative"] <= own["arithmetic"]["bound"],
               f"{capture.name}: outputs")
        tensors, metadata = load(capture)
        geometry, anchor = json.loads(metadata["geometry"]), int(metadata.get("anchor", "0"))
        dump = folder / "transformers.safetensors"
        given = {"rows": tensors["expected_rows"],
                 "visible": Tensor("I64", tensors["query_positions"].data - anchor + 1),
                 "output": tensors["expected_output"]}
        save(dump, given, {"seriatim": "selection/1", "group_tokens": str(geometry["group_tokens"]),
                           "budget_tokens": str(geometry["budget_tokens"]), "anchor": str(anchor)})
        report = tool.judge(f"{capture.name} as a dump", dump, "--against", capture)
        same = ("conforms", "rows", "counts", "arithmetic", "findings")
        expect([report[key] for key in same] == [own[key] for key in same],
               f"{capture.name}: a dump is judged otherwise than the capture")
        tool.refused("another anchor", write(folder / "other.safetensors", given["rows"].data, given["visible"].data),
                     "--against", capture, naming="where the capture has")


def check_refusals(tool, folder):
    rows, visible, scores = right_dump()
    path = folder / "bad.safetensors"
    tool.refused("no rows", write(path, rows[:0], visible[:0]), naming="0 rows")
    tool.refused("fewer counts", write(path, rows, visible[:-1]), naming="39 counts for 40 rows")
    tool.refused("fewer groups", write(path, rows, visible, scores[:, :5]), naming="scores")
    tool.refused("a negative count", write(path, rows, -visible), naming="tokens")
    tool.refused("an odd budget", write(path, rows, visible, budget_tokens="65"), naming="budget_tokens")
    nan = scores.copy()
    nan[QUERIES - 1, 3] = np.nan
    tool.refused("NaN", write(path, rows, visible, nan), naming="group 3")
    save(path, {"rows": Tensor("F32", rows.astype("<f4")), "visible": Tensor("I64", visible)},
         {"seriatim": "selection/1", "group_tokens": "4", "budget_tokens": "64"})
    tool.refused("float rows", path, naming="dtype f32")
    path.write_bytes(write(path, rows, visible, scores).read_bytes()[:-1])
    tool.refused("a cut file", path, naming="scores")
    path.write_bytes(b"not a dump at all")
    tool.refused("no dump", path, naming="header")
    tool.refused("no file", folder / "none", naming="cannot be opened")
    tool.refused("no such promise", "--explain", "kindness", naming="kindness")
    tool.refused("nothing to judge", naming="dump")
    write(path, rows, visible, scores)
    tool.refused("a folder that is not there", path, "--json", folder / "none" / "x.json", naming="its directory")


def check_words(tool, folder):
    for promise in PROMISES:
        done = tool.run("--explain", promise)
        expect(done.returncode == 0 and done.stdout.startswith(promise + ": ") and len(done.stdout) > 100,
               f"--explain {promise}: {done}")
    path = write(folder / "dump.safetensors", *right_dump())
    master, slave = os.openpty()
    for environment, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        base = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
        subprocess.run([tool.binary, "check", str(path)], stdout=slave, check=True,
                       env={**base, "TERM": "xterm", **environment})
        shown = b""
        while select.select([master], [], [], 0.5)[0]:
            shown += os.read(master, 1 << 16)
        expect((b"\033[" in shown) == coloured and b"conforms" in shown, f"colours on a terminal with {environment}")


def check_picture(tool, folder):
    """The PNG, decoded by hand: as many lines as rows, and the dense rows full."""
    rows, visible, scores = right_dump()
    path = folder / "rows.png"
    tool.run(write(folder / "dump.safetensors", rows, visible, scores), "--png", path)
    data = path.read_bytes()
    expect(data[:8] == b"\x89PNG\r\n\x1a\n", "no PNG")
    width, height = struct.unpack(">II", data[16:24])
    at, packed = 8, b""
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        body = data[at + 4 : at + 8 + size]
        expect(zlib.crc32(body) == struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0],
               "a chunk's checksum is wrong")
        packed += body[4:] if body[:4] == b"IDAT" else b""
        at += 12 + size
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, width + 1)[:, 1:]
    expect((height, width) == (320, int(visible.max())), f"{height} x {width} pixels")
    thick = lines.reshape(QUERIES, height // QUERIES, width)
    expect((thick == thick[:, :1]).all(), "the lines of a row differ")
    lines = thick[:, 0]
    expect(((lines > 1).sum(axis=1) == (rows >= 0).sum(axis=1)).all(), "pixels of rows do not count their tokens")
    expect(((lines > 0).sum(axis=1) == visible).all(), "pixels do not count the visible tokens")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seriatim", required=True)
    parser.add_argument("--captures", type=pathlib.Path, required=True)
    parser.add_argument("--schema", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    schema = json.loads(arguments.schema.read_text(encoding="utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    captures = sorted(arguments.captures.glob("*.safetensors"))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tool = Tool(arguments.seriatim, schema, folder)
        check_verdicts(tool, folder)
        check_captures(tool, captures, folder)
        check_refusals(tool, folder)
        check_words(tool, folder)
        check_picture(tool, folder)
    for fault in FAULTS:
        print(fault, file=sys.stderr)
    print(f"{len(captures)} captures, {CHECKS} checks, {len(FAULTS)} faults")
    return 1 if FAULTS or not captures else 0


if __name__ == "__main__":
    sys.exit(main())
