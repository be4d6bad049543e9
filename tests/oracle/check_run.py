"""Replays captures with the command-line tool and compares its file with the NumPy oracle.

    python3 check_run.py --seriatim BUILD/cli/seriatim CAPTURE.safetensors...

Rows and counts must be the oracle's exactly: both sides settle ties by position and round scores alike, so nothing is
left to allow. Output and log-sum-exp are f32 chains here against f64 there, so they have bounds. Exit 1 on any failure.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from canonical import answer, stored_rows
from capture import read_capture
from safetensors_file import load

# A softmax average of n values errs by the rounding of logits and weights, not by n: about 1e-7 of the largest |v|
# was seen with exp 2 ulp off on purpose. The bounds leave a factor of ten.
OUTPUT_BOUND = 1e-6  # relative to the largest |v| of the capture
LSE_BOUND = 1e-6  # relative to the larger of 1 and |lse|


def run_tool(seriatim, capture_path, replay_path):
    return subprocess.run(
        [seriatim, "run", capture_path, "--out", replay_path], capture_output=True, text=True, timeout=600
    )


def check_tensor(tensors, name, dtype, shape):
    """The tensor's data, or a sentence about what is wrong with it."""
    if name not in tensors:
        return None, f"no tensor {name} in the replay"
    tensor = tensors[name]
    if (tensor.dtype, tensor.data.shape) != (dtype, shape):
        return None, f"{name} is {tensor.dtype} {tensor.data.shape}, expected {dtype} {shape}"
    return tensor.data, None


def first_row_difference(rows, expected_rows):
    query, column = np.argwhere(rows != expected_rows)[0]
    return f"rows[{query}][{column}] is {rows[query, column]}, expected {expected_rows[query, column]}"


def compare(capture, answers, tensors):
    """Gives (complaints, largest output error over |v|, largest lse error over max(1, |lse|))."""
    count, heads, value_dim = answers.output.shape
    wanted = [
        ("rows", "I32", (count, capture.row_storage)),
        ("counts", "I32", (count,)),
        ("output", "F32", (count, heads, value_dim)),
        ("lse", "F32", (count, heads)),
    ]
    found = [check_tensor(tensors, *entry) for entry in wanted]
    complaints = [complaint for _, complaint in found if complaint]
    if complaints:
        return complaints, np.inf, np.inf
    rows, counts, output, lse = (data for data, _ in found)
    expected_rows = stored_rows(capture, answers.rows)
    expected_counts = np.array([len(row) for row in answers.rows])
    if not np.array_equal(counts, expected_counts):
        query = np.flatnonzero(counts != expected_counts)[0]
        complaints.append(f"counts[{query}] is {counts[query]}, expected {expected_counts[query]}")
    if not np.array_equal(rows, expected_rows):
        complaints.append(first_row_difference(rows, expected_rows))
    output_error = float(np.abs(output - answers.output).max() / np.abs(capture.values).max())
    lse_error = float((np.abs(lse - answers.lse) / np.maximum(1, np.abs(answers.lse))).max())
    # Written so that a NaN fails.
    if not output_error <= OUTPUT_BOUND:
        complaints.append(f"output is off by {output_error:.3g} of the largest |v|, more than {OUTPUT_BOUND:g}")
    if not lse_error <= LSE_BOUND:
        complaints.append(f"lse is off by {lse_error:.3g}, more than {LSE_BOUND:g}")
    return complaints, output_error, lse_error


def check_capture(seriatim, path):
    """Prints one line, and what is wrong under it. Gives (passed, rows, outputs compared)."""
    capture = read_capture(path)
    answers = answer(capture)
    with tempfile.TemporaryDirectory() as folder:
        replay_path = str(Path(folder) / "replay.safetensors")
        ran = run_tool(seriatim, path, replay_path)
        complaints, output_error, lse_error = [], np.inf, np.inf
        if ran.returncode != 0:
            complaints.append(f"exit code {ran.returncode}: {ran.stderr.strip() or ran.stdout.strip()}")
        if Path(replay_path).exists():
            tensors, metadata = load(replay_path)
            if metadata.get("seriatim") != "replay/1":
                complaints.append(f"metadata seriatim is {metadata.get('seriatim')!r}, expected 'replay/1'")
            compared, output_error, lse_error = compare(capture, answers, tensors)
            complaints += compared
        else:
            complaints.append("no replay was written")
    tokens = sum(len(row) for row in answers.rows)
    print(
        f"{Path(path).stem:24} {len(answers.rows):4} rows, {tokens:6} tokens, {answers.output.size:6} outputs, "
        f"{answers.lse.size:4} lse; output off by {output_error:.2g}, lse by {lse_error:.2g}: "
        f"{'FAILED' if complaints else 'agrees'}"
    )
    for complaint in complaints:
        print(f"  {complaint}")
    return not complaints, len(answers.rows), answers.output.size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seriatim", required=True, help="path of the command-line tool")
    parser.add_argument("captures", nargs="+")
    options = parser.parse_args()
    results = [check_capture(options.seriatim, path) for path in options.captures]
    rows, outputs = sum(r[1] for r in results), sum(r[2] for r in results)
    failures = sum(not r[0] for r in results)
    print(f"{len(results)} captures, {rows} rows and {outputs} outputs compared, {failures} captures failed")
    sys.exit(1 if failures or rows == 0 else 0)


if __name__ == "__main__":
    main()
