"""What the seriatim tool promises at its edge: exit codes, one line on stderr, output written whole or not at all.

    check_tool.py --seriatim BIN --captures DIR
"""

import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np

FAULTS = []
CHECKS = 0


def expect(condition, what):
    global CHECKS
    CHECKS += 1
    if not condition:
        FAULTS.append(what)


def read_header(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def write_file(path, header, body):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


class Tool:
    def __init__(self, binary):
        self.binary = binary

    def __call__(self, *arguments, kernels=None):
        environment = {**os.environ, "SERIATIM_KERNELS": kernels} if kernels else None
        return subprocess.run([self.binary, *map(str, arguments)], text=True, capture_output=True, check=False,
                              env=environment)

    def refused(self, what, *arguments, naming):
        """Bad input: exit 2, one line on stderr that names the fault, nothing on stdout."""
        done = self(*arguments)
        lines = done.stderr.splitlines()
        expect(done.returncode == 2, f"{what}: exit {done.returncode}, not 2")
        expect(len(lines) == 1 and naming in lines[0],
               f"{what}: stderr is {done.stderr!r}, without one line naming {naming!r}")
        expect(done.stdout == "", f"{what}: prints {done.stdout!r}")


def check_run(tool, capture, folder):
    replay = folder / "replay.safetensors"
    done = tool("run", capture, "--out", replay, "--json")
    expect(done.returncode == 0, f"run: exit {done.returncode}: {done.stderr}")
    report = json.loads(done.stdout)
    expect(report["agrees"] is True and report["rows"]["wrong"] == 0, "run: the shipped capture does not agree")
    expect(report["queries"] == report["dense_rows"] + report["sparse_rows"], "run: rows do not add up")
    expect(report["queries"] == sum(report["rows"][kind] for kind in ("exact", "tie", "near", "wrong")),
           "run: verdicts do not add up")
    first = replay.read_bytes()
    for threads in (1, 2, 3, 8):
        again = tool("run", capture, "--out", replay, "--json", "--threads", threads)
        expect(json.loads(again.stdout)["digests"] == report["digests"], f"run: {threads} threads give another digest")
        expect(replay.read_bytes() == first, f"run: {threads} threads write another file")
    table = tool("run", capture)
    expect(report["digests"]["rows"] in table.stdout and "verdict" in table.stdout,
           "run: the table lacks its digest or verdict")


def damage_output(capture, to):
    header, body = read_header(capture)
    begin, end = header["expected_output"]["data_offsets"]
    output = np.frombuffer(body[begin:end], "<f4").copy()
    output[3] += 1.0
    write_file(to, header, body[:begin] + output.tobytes() + body[end:])


def damage_rows(capture, to):
    """Moves the last sparse row's first group one group on, to one that scores otherwise."""
    header, body = read_header(capture)
    begin, end = header["expected_rows"]["data_offsets"]
    rows = np.frombuffer(body[begin:end], "<i4").reshape(header["expected_rows"]["shape"]).copy()
    count = int((rows[-1] >= 0).sum())
    rows[-1, : count - 1] = rows[-1, 1:count]
    rows[-1, count - 1] = -1
    write_file(to, header, body[:begin] + rows.tobytes() + body[end:])


def check_disagreement(tool, capture, folder):
    for name, damage in (("output", damage_output), ("rows", damage_rows)):
        changed = folder / f"changed_{name}.safetensors"
        damage(capture, changed)
        done = tool("run", changed)
        expect(done.returncode == 1, f"run with changed {name}: exit {done.returncode}, not 1")
        expect("does not agree" in done.stdout, f"run with changed {name}: no verdict")


def check_bad_captures(tool, capture, folder):
    bad = folder / "bad.safetensors"
    header, body = read_header(capture)
    replay = folder / "kept.safetensors"
    replay.write_text("what was there before")

    cases = []
    for name in ("keys", "index_queries", "query_positions"):
        cases.append((f"no {name}", {k + "_" if k == name else k: v for k, v in header.items()}, name))
    wrong_type = json.loads(json.dumps(header))
    wrong_type["__metadata__"]["seriatim"] = "capture/9"
    cases.append(("another version", wrong_type, "metadata"))
    odd_budget = json.loads(json.dumps(header))
    odd_budget["__metadata__"]["geometry"] = odd_budget["__metadata__"]["geometry"].replace("2048", "2050")
    cases.append(("an odd budget", odd_budget, "budget_tokens"))
    for what, changed, naming in cases:
        write_file(bad, changed, body)
        tool.refused(what, "run", bad, "--out", replay, naming=naming)
    bad.write_bytes(capture.read_bytes()[:-1])
    tool.refused("a truncated capture", "run", bad, "--out", replay, naming="data")
    tool.refused("a missing capture", "run", folder / "nowhere", naming="nowhere")
    expect(replay.read_text() == "what was there before", "a refused run touched its output")
    tool.refused("an output nowhere", "run", capture, "--out", folder / "no" / "such" / "folder",
                 naming="no/such/folder")


def check_select(tool, folder):
    scores = folder / "scores.npy"
    out = folder / "rows.npy"
    np.save(scores, np.array([3, 1, 2, 1, 5], "<f4"))
    done = tool("select", scores, "--group", 2, "--budget", 4, "--anchor", 10, "--visible", 11, "--out", out)
    expect(done.returncode == 0, f"select: exit {done.returncode}: {done.stderr}")
    rows = np.load(out)
    expect(rows.dtype == np.int32 and rows.tolist() == [[10, 11, 18, 19, 20]], f"select: rows are {rows.tolist()}")
    np.save(scores, np.array([[0, 9], [9, 0]], "<f4"))
    done = tool("select", scores, "--group", 2, "--budget", 2)
    expect(done.stdout.count("\n") == 2 and "1 of 2 groups" in done.stdout, f"select: the summary is {done.stdout!r}")
    # A group of the future scores best and is never chosen.
    done = tool("select", scores, "--group", 2, "--budget", 2, "--visible", 3, "--out", out)
    expect(np.load(out).tolist() == [[0, 1, 2], [0, 1, 2]], f"select: the future was chosen: {np.load(out).tolist()}")


def check_bad_scores(tool, folder):
    scores = folder / "scores.npy"
    out = folder / "rows.npy"
    out.write_text("what was there before")
    np.save(scores, np.array([[1, 2, 3], [4, np.nan, 6]], "<f4"))
    tool.refused("NaN", "select", scores, "--group", 1, "--budget", 1, "--out", out, naming="group 1 of row 1")
    np.save(scores, np.array([1.0, 2.0]))
    tool.refused("f64 scores", "select", scores, "--out", out, naming="<f8")
    np.save(scores, np.zeros((1, 1, 4), "<f4"))
    tool.refused("rank 3", "select", scores, "--out", out, naming="rank 3")
    np.save(scores, np.zeros(4, "<f4"))
    tool.refused("too few scores", "select", scores, "--visible", 20, "--out", out, naming="scores")
    tool.refused("a negative count", "select", scores, "--visible", -1, "--out", out, naming="visible")
    tool.refused("budget and group", "select", scores, "--group", 3, "--budget", 4, "--out", out,
                 naming="budget_tokens")
    scores.write_bytes(scores.read_bytes()[:-1])
    tool.refused("truncated scores", "select", scores, "--out", out, naming="data")
    expect(out.read_text() == "what was there before", "a refused select touched its output")


def check_kernels(tool, capture):
    """Every implementation that the tool offers can be forced, says so, and gives the same digests."""
    names = tool("--version").stdout.split("one of:")[1].strip(" )\n").split()
    expect("reference" in names, f"kernels: {names} lacks the reference")
    digests = set()
    for name in names:
        expect(f"kernels {name} " in tool("--version", kernels=name).stdout,
               f"kernels: {name} was forced and is not named")
        digests.add(json.dumps(json.loads(tool("run", capture, "--json", kernels=name).stdout)["digests"]))
    expect(len(digests) == 1, f"kernels: {len(digests)} digests from {names}")
    done = tool("run", capture, kernels="abacus")
    expect(done.returncode == 2 and "abacus" in done.stderr and names[0] in done.stderr,
           f"kernels: an unknown name gives {done}")


def check_usage(tool):
    for arguments in ((), ("nonsense",), ("run",), ("select",), ("run", "--threads", "x", "y"),
                      ("select", "s", "--nan", "maybe")):
        done = tool(*arguments)
        expect(done.returncode == 2, f"{arguments}: exit {done.returncode}, not 2")
        expect(done.stderr != "" and done.stdout == "", f"{arguments}: says nothing on stderr")
    for arguments in (("--help",), ("run", "--help"), ("select", "--help"), ("--version",)):
        done = tool(*arguments)
        expect(done.returncode == 0 and done.stdout and not done.stderr, f"{arguments}: exit {done.returncode}")


def check_standard_output(tool, capture):
    """What cannot be written to standard output ends with 2 and a line on stderr, whatever the verdict."""
    capture = os.path.abspath(capture)
    commands = (("run", capture), ("run", capture, "--json"), ("check", capture), ("check", capture, "--json", "-"),
                ("--help",), ("run", "--help"), ("--version",), ("check", "--explain", "order"))
    for arguments in commands:
        for what, where in (("full", ">/dev/full"), ("closed", ">&-"), ("limited", "> limited; exit $?")):
            with tempfile.TemporaryDirectory() as folder:
                limit = "ulimit -f 0; " if what == "limited" else ""
                words = ["sh", "-c", f'{limit}"$@" {where}', "sh", os.path.abspath(tool.binary), *arguments]
                done = subprocess.run(words, cwd=folder, text=True, capture_output=True, check=False)
            lines = done.stderr.splitlines()
            case = f"{arguments}, {what} standard output"
            expect(done.returncode == 2, f"{case}: exit {done.returncode}, not 2")
            expect(len(lines) == 1 and "standard output" in lines[0], f"{case}: stderr is {done.stderr!r}")


def check_little_memory(tool, capture, folder):
    """Under any limit on its address space the tool does its work or says that there was no memory."""
    def limited(kib, *arguments):
        words = ["sh", "-c", f'ulimit -v {kib}; "$@"', "sh", tool.binary, *map(str, arguments)]
        return subprocess.run(words, text=True, capture_output=True, check=False)

    if limited(400_000, "--version").returncode != 0:
        return  # a sanitizer's own address space passes any limit
    refused = 0
    for kib in range(72_000, 124_000, 2_000):
        for arguments in (("run", capture, "--threads", 8), ("check", capture, "--html", folder / "page.html")):
            done = limited(kib, *arguments)
            expect(done.returncode in (0, 1, 2), f"{arguments[0]} in {kib} KiB: exit {done.returncode}: {done.stderr}")
            refused += done.returncode == 2
    expect(refused > 0, "no limit was too low, so nothing was shown")


def check_outputs(tool, capture, folder):
    """What stands at an output's name stays what it is; what cannot be written is said before anything is computed."""
    target, link, private, fifo = (folder / name for name in ("target", "link", "private", "fifo"))
    for option in (("run", capture, "--out"), ("run", capture, "--html"), ("check", capture, "--json"),
                   ("check", capture, "--html"), ("check", capture, "--png")):
        for path in (target, private):
            path.write_text("what was there before")
        private.chmod(0o600)
        link.unlink(missing_ok=True)
        link.symlink_to("target")
        for path in (link, private):
            expect(tool(*option, path).returncode < 2, f"{option[-1]} {path.name}: refused")
        expect(link.is_symlink() and target.stat().st_size > 100, f"{option[-1]}: a link is not followed")
        mode = private.stat().st_mode & 0o777
        expect(mode == 0o600, f"{option[-1]}: a private file has mode {mode:o}")
        fifo.unlink(missing_ok=True)
        os.mkfifo(fifo)
        read = folder / "read"
        with read.open("wb") as to, subprocess.Popen(["cat", str(fifo)], stdout=to) as reader:
            written = tool(*option, fifo).returncode < 2
            expect(written, f"{option[-1]} FIFO: refused")
            if not written:
                reader.kill()
        expect(read.stat().st_size > 100 and fifo.is_fifo(), f"{option[-1]}: its reader got nothing")
        tool.refused(f"{option[-1]} into a folder that is absent", *option, folder / "new" / "file", naming="new/file")
        tool.refused(f"{option[-1]} to a folder", *option, folder, naming="directory")
        tool.refused(f"{option[-1]} over its input", *option, capture, naming=option[-1][2:])
    same = folder / "same"
    tool.refused("two outputs of one name", "check", capture, "--json", same, "--html", same, naming="html")
    expect(not same.exists(), "a refused check left its output")
    killed = folder / "target.tmp-1-0"
    killed.write_text("what a killed run left")
    expect(tool("run", capture, "--out", target).returncode == 0, "run: refused beside what a killed run left")
    expect(not killed.exists(), "what a killed run left stays")


def check_foreign_text(tool, dump, folder):
    """Text of a file cannot end a report, forge a line of it or reach the terminal."""
    header, body = read_header(dump)
    for what, engine in (("NUL", "my engine\0 1.0"), ("newline", "my engine\n\nconforms"),
                         ("escape", "my \x1b[2J\x1b]0;t\x07"), ("C1", "my \x9b2J")):
        header["__metadata__"]["engine"] = engine
        path = folder / "foreign.safetensors"
        write_file(path, header, body)
        done = tool("check", path)
        lines = done.stdout.splitlines()
        expect(done.returncode == 1 and "does not conform" in lines[-1], f"{what}: the report ends with {lines[-1:]}")
        expect("conforms" not in lines, f"{what}: a forged line")
        expect(all(c.isprintable() for line in lines for c in line), f"{what}: control characters reach the terminal")
        header["__metadata__"]["seriatim"], kind = engine, header["__metadata__"]["seriatim"]
        write_file(path, header, body)
        tool.refused(f"{what} in a version", "check", path, naming="metadata")
        header["__metadata__"]["seriatim"] = kind


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seriatim", required=True)
    parser.add_argument("--captures", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    tool = Tool(arguments.seriatim)
    captures = sorted(arguments.captures.glob("*.safetensors"))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for capture in captures:
            check_run(tool, capture, folder)
            check_disagreement(tool, capture, folder)
            check_kernels(tool, capture)
        check_bad_captures(tool, captures[0], folder)
        check_select(tool, folder)
        check_bad_scores(tool, folder)
        check_foreign_text(tool, arguments.captures / "recorded" / "dsa_f32_dump.safetensors", folder)
        conforming = arguments.captures / "qsa_f32.safetensors"
        check_outputs(tool, conforming, folder)
        check_standard_output(tool, conforming)
        check_little_memory(tool, conforming, folder)
    check_usage(tool)
    for fault in FAULTS:
        print(fault, file=sys.stderr)
    print(f"{len(captures)} captures, {CHECKS} checks, {len(FAULTS)} faults")
    return 1 if FAULTS or not captures else 0


if __name__ == "__main__":
    sys.exit(main())
