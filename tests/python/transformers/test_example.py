"""The example of a whole model, and the README's lines of it."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "python" / "transformers_model.py"


def test_the_example_writes_what_transformers_writes():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=True)
    theirs, ours = (re.search(rf"{who} wrote +(\[.*\])", done.stdout).group(1) for who in ("Transformers", "Seriatim"))
    assert theirs == ours and theirs.count(",") == 19


def test_the_readme_shows_lines_of_the_example():
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    shown = [block for block in blocks if "transformers" in block]
    assert shown and all(block in EXAMPLE.read_text() for block in shown)
