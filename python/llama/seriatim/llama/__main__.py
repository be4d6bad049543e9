"""Prints the libraries as a shell reads them: eval "$(python -m seriatim.llama)"; LD_PRELOAD=$SERIATIM_PRELOAD ..."""

import shlex

from . import LIBRARY, PRELOAD

print(f"SERIATIM_GGML_LIBRARY={shlex.quote(str(LIBRARY))}")
print(f"SERIATIM_PRELOAD={shlex.quote(str(PRELOAD))}")
