"""Tests of an unmodified llama.cpp with the backend; scripts/llama runs them and says where things are."""

import os
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
sys.path.insert(0, str(TREE / "examples" / "llama"))

import running  # noqa: E402


class Built:
    """What scripts/llama has built."""

    def __init__(self):
        self.root, build = Path(os.environ["SERIATIM_LLAMA_ROOT"]), Path(os.environ["SERIATIM_LLAMA_BUILD"])
        self.package = Path(os.environ["SERIATIM_LLAMA_PACKAGE"])  # llama-cpp-python, unpacked
        self.tools = self.root / "build" / "bin"  # llama.cpp's libraries and programs
        self.run, self.load = build / "llama" / "llama_run", build / "llama" / "llama_load"
        self.backend = build / "ggml" / "libggml-seriatim.so"
        self.preload = build / "ggml" / "libseriatim-llama-preload.so"
        self.check = build / "cli" / "seriatim"


@pytest.fixture(scope="session")
def built():
    return Built()


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """model(family, **options of make_model): a small model; each is made once. Budgets are small, too, so that 600
    tokens are many."""
    folder = tmp_path_factory.mktemp("models")

    def make(family, budget=None, **options):
        budget = budget or {"minimax-m3": 256, "deepseek4": 128}.get(family, 64)
        name = "-".join([family, str(budget), *(f"{k}{v}" for k, v in options.items())])
        return running.make_model(family, folder / f"{name}.gguf", budget=budget, **options)

    return make


@pytest.fixture
def run(built, tmp_path):
    """run(model, backend=True, **options of llama_run): a running.Result with logits."""

    def call(path, *flags, backend=True, **options):
        return running.run(built.run, path, *flags, backend=built.backend if backend else None,
                           logits=tmp_path / "logits.npy", **options)

    return call
