"""The NumPy oracle of tests/oracle beside the package, and what most tests start from."""

import pathlib
import sys
import tempfile

import pytest
from hypothesis import settings
from hypothesis.configuration import set_hypothesis_home_dir

import seriatim
from support_layers import SMALL, Tokens

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "oracle"))

# The tree stays as it is, and a failure shows in every run rather than where a database remembers it.
_scratch = tempfile.TemporaryDirectory()  # removed as the process ends
set_hypothesis_home_dir(_scratch.name)
settings.register_profile("tree", database=None, derandomize=True, deadline=None)
settings.load_profile("tree")


@pytest.fixture
def geometry():
    return seriatim.Geometry(**SMALL)


@pytest.fixture
def tokens():
    return Tokens(75)
