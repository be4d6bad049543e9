"""The command `python -m seriatim.record`. The function of that name is `seriatim.record`, and importing this would
hide it."""

if __name__ != "__main__":
    raise ImportError(
        "seriatim.record is a function, and `python -m seriatim.record` a command; there is no module to import")

import importlib
import sys

sys.exit(importlib.import_module("seriatim.transformers.recording.command").main())
