"""Replays captures of minimax_m3_vl with the command-line tool: rows and bits are those that stand in the files.
Captures of deepseek_v4 are refused by name.

    python3 check_families_run.py --seriatim BUILD/cli/seriatim FOLDER
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from safetensors_file import load


def replay(seriatim, path, folder):
    out = Path(folder) / "replay.safetensors"
    out.unlink(missing_ok=True)
    ran = subprocess.run([seriatim, "run", str(path), "--out", str(out)], capture_output=True, text=True, timeout=600)
    return ran, out


def faults_of_row_sets(seriatim, path, folder):
    ran, out = replay(seriatim, path, folder)
    if ran.returncode != 0:
        return [f"exit code {ran.returncode}: {ran.stderr.strip() or ran.stdout.strip()}"]
    want, got = load(path)[0], load(out)[0]
    faults = []
    for name, theirs in (("rows", "expected_rows"), ("output", "canonical_output"), ("lse", "canonical_lse")):
        if got[name].data.shape != want[theirs].data.shape or got[name].data.tobytes() != want[theirs].data.tobytes():
            faults.append(f"{name} differ from {theirs}")
    if not np.array_equal(got["counts"].data, (want["expected_rows"].data >= 0).sum(axis=-1)):
        faults.append("counts are not the rows' lengths")
    return faults


def faults_of_entries(seriatim, path, folder):
    ran, out = replay(seriatim, path, folder)
    refused = ran.returncode != 0 and "geometry: no group_tokens" in ran.stderr and not out.exists()
    return [] if refused else [f"not refused by name: {ran.stderr.strip()}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seriatim", required=True)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    paths, failed = sorted(options.folder.glob("*.safetensors")), 0
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            judge = faults_of_row_sets if path.name.startswith("m3") else faults_of_entries
            faults = judge(options.seriatim, path, folder)
            print(f"{path.stem:24} {'; '.join(faults) or 'as it should be'}")
            failed += bool(faults)
    sys.exit(1 if failed or not paths else 0)


if __name__ == "__main__":
    main()
