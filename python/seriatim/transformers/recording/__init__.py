"""Recording what a live model's indexers select, and what their layers compute: see :func:`seriatim.record`."""

import contextlib
import pathlib
import tempfile

from .._enable import is_enabled
from ..refusal import Unsupported
from .families import FAMILIES, indexed_layers
from .recorder import LayerRecorder

WHAT = ("dump", "capture", "both")


class Recording:
    """What is being recorded. `files` are there once the block has ended."""

    def __init__(self, layers):
        self.indexed_layers = layers
        self.files = []

    def __repr__(self):
        layers = [layer.layer_idx for layer in self.indexed_layers]
        return f"<seriatim recording of layers {layers}: {len(self.files)} files>"


@contextlib.contextmanager
def record(model, folder, *, what="dump", every=1, layers=None):
    chosen = _chosen_layers(model, what, layers)
    if every < 1:
        raise ValueError(f"record: every is {every}, and must be at least 1")
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    recording = Recording(chosen)
    with tempfile.TemporaryDirectory(prefix=".recording-", dir=folder) as scratch, contextlib.ExitStack() as stack:
        recorders = [LayerRecorder(layer, folder, pathlib.Path(scratch), what, every) for layer in chosen]
        for recorder in recorders:
            recorder.attach()
            stack.callback(recorder.detach)
        yield recording
        for recorder in recorders:
            for store in (recorder.dumps, recorder.captures):
                recording.files += store.save() if store is not None else []


def _chosen_layers(model, what, wanted):
    if what not in WHAT:
        raise ValueError(f"record: what is {what!r}, and must be one of {', '.join(WHAT)}")
    layers = indexed_layers(model)
    if is_enabled(model):
        raise Unsupported(
            "record: the model is enabled, so that Seriatim selects; disable it, or use seriatim.transformers.watching")
    if wanted is not None:
        known = [layer.layer_idx for layer in layers]
        for index in wanted:
            if index not in known:
                raise ValueError(f"record: layer {index} does not select; these do: {known}")
        layers = [layer for layer in layers if layer.layer_idx in wanted]
    for layer in layers:
        if what != "dump" and layer.family.capture not in ("latent", "groups", "blocks"):
            raise Unsupported(
                f"record: {layer.family_name} cannot be captured: {layer.family.capture}; what=\"dump\" works")
    return layers


__all__ = ["FAMILIES", "Recording", "record"]
