"""Seriatim's sparse attention in llama-cpp-python, which stays as it is.

    import seriatim.llama
    seriatim.llama.load()                                     # once, before any model is loaded
    model = llama_cpp.Llama("model.gguf", flash_attn=True)

`python -m seriatim.llama` prints where the libraries are, for LD_PRELOAD and GGML_BACKEND_PATH.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

__all__ = ["LIBRARY", "PRELOAD", "load"]

LIBRARY = Path(__file__).with_name("libggml-seriatim.so")
PRELOAD = Path(__file__).with_name("libseriatim-llama-preload.so")


def load(library: str | os.PathLike[str] | None = None) -> list[str]:
    """Loads the backend into the llama.cpp of this process and returns the names of ggml's devices.

    Models that are loaded from now on use it; calling it again does nothing more. ``library``: another build of
    libggml-seriatim.so than the package's own. ``ImportError``: there is no llama-cpp-python, or one whose ggml is not
    a library of its own. ``RuntimeError``: ggml or the backend refused, for instance because it was not tested with
    this version of ggml; what they say goes to standard error.
    """
    import llama_cpp  # noqa: F401  it loads its libraries, which are looked for below

    path = LIBRARY if library is None else Path(library)
    try:
        ggml = ctypes.CDLL("libggml.so.0", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError as error:
        raise ImportError(f"llama_cpp ({llama_cpp.__file__}) has loaded no libggml.so.0: {error}") from None
    if not path.exists():
        raise FileNotFoundError(f"{path}: the backend is not there")
    ggml.ggml_backend_reg_count.restype = ctypes.c_size_t
    if ggml.ggml_backend_reg_count() == 0:  # none is built in; llama.cpp loads them only as long as there is none
        ggml.ggml_backend_load_all()
    ggml.ggml_backend_load.restype = ctypes.c_void_p
    ggml.ggml_backend_load.argtypes = [ctypes.c_char_p]
    if not ggml.ggml_backend_load(os.fsencode(path)):
        raise RuntimeError(f"{path}: not loaded; ggml's message on standard error says why")
    base = ctypes.CDLL("libggml-base.so.0", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    ggml.ggml_backend_dev_get.restype = ctypes.c_void_p
    ggml.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    base.ggml_backend_dev_name.restype = ctypes.c_char_p
    base.ggml_backend_dev_name.argtypes = [ctypes.c_void_p]
    return [base.ggml_backend_dev_name(ggml.ggml_backend_dev_get(i)).decode()
            for i in range(ggml.ggml_backend_dev_count())]
