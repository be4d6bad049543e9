"""A selection dump per layer, sequence and head, written as the model runs."""

import torch
import transformers

from ..refusal import Unsupported
from .files import GrowingTensor, save


class Dumps:
    """The dumps of one layer."""

    def __init__(self, layer, folder, scratch):
        self.layer, self.folder, self.scratch = layer, folder, scratch
        self._parts = {}  # (sequence, head) -> (anchor, tensors)

    def append(self, sequence, selection, kept):
        """Writes the selection's queries `kept`."""
        if len(kept) == 0:
            return
        tensors = self._tensors(sequence, selection)
        tensors["rows"].append(selection.rows[kept.to(selection.rows.device)])
        tensors["visible"].append(selection.visible[kept].to(torch.int32))
        tensors["scores"].append([selection.scores[i] for i in kept.tolist()])

    def _tensors(self, sequence, selection):
        key = (sequence, selection.part)
        if key not in self._parts:
            name = name_of(self.layer, *key)
            new = {"rows": (torch.int32, selection.rows.shape[1:]), "visible": (torch.int32, ()),
                   "scores": (torch.float32, None)}
            self._parts[key] = selection.anchor, {
                what: GrowingTensor(self.scratch / f"{name}.{what}", dtype, shape) for what,
                (dtype, shape) in new.items()}
        anchor, tensors = self._parts[key]
        if anchor != selection.anchor:
            raise Unsupported(
                f"record: sequence {sequence} began at slot {anchor} and now at {selection.anchor}; "
                "record each text on its own")
        return tensors

    def save(self):
        """Gives the files, by sequence and head."""
        paths = []
        sequences = max((sequence for sequence, _ in self._parts), default=0)
        for (sequence, part), (anchor, tensors) in sorted(self._parts.items()):
            path = self.folder / f"{name_of(self.layer, sequence if sequences else None, part)}.safetensors"
            indexer, family = self.layer.indexer, self.layer.family
            save(path, tensors, {
                "seriatim": "selection/1", "group_tokens": str(family.group_tokens(indexer)),
                "budget_tokens": str(family.budget_tokens(indexer)),
                "anchor": str(anchor), "unit": family.unit, "engine": describe(self.layer)})
            paths.append(path)
        return paths


def name_of(layer, sequence, part):
    name = f"layer_{layer.layer_idx:02}"
    if sequence is not None:
        name += f"_sequence_{sequence}"
    return f"{name}_{part}" if part else name


def describe(layer):
    parameter = next(layer.attention.parameters())
    implementation = layer.attention.config._attn_implementation
    return (
        f"{layer.family_name} of transformers {transformers.__version__}, torch {torch.__version__}, layer "
        f"{layer.layer_idx}, {implementation}, "
            f"{str(parameter.dtype).removeprefix('torch.')} on {parameter.device.type}")
