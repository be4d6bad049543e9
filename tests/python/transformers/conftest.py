import pathlib
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "oracle")]
