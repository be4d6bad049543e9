"""Deterministic sparse attention: top-k chooses the set, time chooses the order.

Arrays are NumPy arrays or torch CPU tensors, read and written in place; results are of the kind of the input. Every
call that computes releases the interpreter's lock. Errors are subclasses of ``seriatim.Error``.
"""

import sysconfig as _sysconfig
from importlib.metadata import version as _version

if _sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise ImportError("seriatim has not been run without the interpreter's lock; import it in CPython's default build, "
                      "not in the free-threaded one")

from ._core import (
    Cache,
    CacheBytes,
    CacheFileInfo,
    DeviceInfo,
    Engine,
    Geometry,
    Layer,
    Sequence,
    Snapshot,
    Transaction,
    WorkDone,
    attend,
    borrow,
    cache_file_info,
    default_engine,
    devices,
    explain,
    kernels,
    pool_keys,
    prepare_index_queries,
    score,
    select,
    verify_cache_file,
)
from . import errors
from ._check import Finding, Report, assert_conforms, check
from .errors import (
    Capacity,
    Code,
    Corrupt,
    Error,
    InvalidArgument,
    Io,
    NotANumber,
    NotChronological,
    NotContiguous,
    NotFinite,
    NotFound,
    OutOfMemory,
    Overflow,
    PeerLost,
    Unsupported,
)
from ._record import record
from ._types import Array, Rows

__version__ = _version("seriatim")

__all__ = [
    "Array",
    "Cache",
    "CacheBytes",
    "CacheFileInfo",
    "Capacity",
    "Code",
    "Corrupt",
    "DeviceInfo",
    "Engine",
    "Error",
    "Finding",
    "Geometry",
    "InvalidArgument",
    "Io",
    "Layer",
    "NotANumber",
    "NotChronological",
    "NotContiguous",
    "NotFinite",
    "NotFound",
    "OutOfMemory",
    "Overflow",
    "PeerLost",
    "Report",
    "Rows",
    "Sequence",
    "Snapshot",
    "Transaction",
    "Unsupported",
    "WorkDone",
    "__version__",
    "assert_conforms",
    "attend",
    "borrow",
    "cache_file_info",
    "check",
    "default_engine",
    "devices",
    "errors",
    "explain",
    "kernels",
    "pool_keys",
    "prepare_index_queries",
    "record",
    "score",
    "select",
    "verify_cache_file",
]
