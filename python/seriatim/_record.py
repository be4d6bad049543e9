"""`seriatim.record`, which needs neither torch nor Transformers until it is called."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any


def record(
    model: Any, folder: str | os.PathLike[str], *, what: str = "dump", every: int = 1,
    layers: Iterable[int] | None = None
) -> AbstractContextManager[Any]:
    """Within it, what a Transformers model's own indexers select is written to `folder`; nothing that the model
    computes changes.

        with seriatim.record(model, "seen") as recording:
            model(**inputs)                # or generate: prefill, chunks and decoding steps go on in the same files
        print(recording.files)             # seriatim check seen/layer_03.safetensors --rule set

    ``model``: of a family with an indexer (``seriatim.transformers.recording.FAMILIES``), eager or sdpa, with no cache
    or a DynamicCache; run on CPUs so far. ``what``: "dump" writes the rows with the scores that the model sorted, one
    file per layer that selects, sequence of the batch and head that selects apart; "capture" writes what the layer was
    given and answered, for ``seriatim run``; "both". ``every``: of the queries, those at each such position.
    ``layers``: only these.

    Rows stand in the order in which the model sorted them. Positions are slots of the cache, so padding on the left
    moves the anchor. Whatever is written goes to disk as the model runs, and into its files when the block ends without
    an exception. ``docs/conformance.md`` says what each family's rows are, and what is refused.
    """
    recording: Any = importlib.import_module("seriatim.transformers.recording")
    context: AbstractContextManager[Any] = recording.record(model, folder, what=what, every=every, layers=layers)
    return context
