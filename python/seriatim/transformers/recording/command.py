"""`python -m seriatim.record`: a model reads a text, and what its indexers select is written down."""

import argparse
import inspect
import pathlib
import sys
import time

import torch
import transformers

from ... import errors
from . import FAMILIES, WHAT, record

_EXAMPLES = """
examples:
  python -m seriatim.record --model ./checkpoint --text book.txt --out seen
  seriatim check seen/layer_03.safetensors --rule set --html layer_03.html

  python -m seriatim.record --model ./checkpoint --text book.txt --out seen --what capture --layers 3 --every 16
  seriatim run seen/layer_03_capture.safetensors
"""


def parse(arguments):
    parser = argparse.ArgumentParser(prog="python -m seriatim.record", description=__doc__, epilog=_EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True,
                        help="a folder with a checkpoint and its tokenizer, or a name that from_pretrained knows")
    parser.add_argument("--text", required=True, type=pathlib.Path, help="a UTF-8 text file")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="the folder to write to")
    parser.add_argument("--what", choices=WHAT, default="dump",
                        help="dump: rows and scores; capture: all that the layer was given (default: dump)")
    parser.add_argument("--tokens", type=int, help="read this many tokens of the text (default: all)")
    parser.add_argument("--chunk", type=int, default=256, help="tokens per forward pass (default: 256)")
    parser.add_argument("--every", type=int, default=1, help="record the queries at each N-th position (default: 1)")
    parser.add_argument("--layers", type=lambda text: [int(word) for word in text.split(",")],
                        help="record these layers alone, as in 3,7,11")
    parser.add_argument("--attention", choices=["eager", "sdpa"], default="eager",
                        help="captures over latents hold outputs with eager alone (default: eager)")
    parser.add_argument("--dtype", default="auto",
                        help="auto, float32, bfloat16 or float16 (default: auto, that of the checkpoint)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, ... (default: cpu)")
    return parser.parse_args(arguments)


def load_model(options):
    config = transformers.AutoConfig.from_pretrained(options.model)
    name = (config.architectures or [None])[0]
    if not hasattr(transformers, name or ""):
        raise errors.Unsupported(
            f"--model: {name} is no class of transformers {transformers.__version__}; "
            f"known families are {', '.join(FAMILIES)}")
    dtype = options.dtype if options.dtype == "auto" else getattr(torch, options.dtype)
    model = getattr(transformers, name).from_pretrained(options.model, dtype=dtype,
                                                        attn_implementation=options.attention)
    return model.to(options.device).eval()


def read_tokens(options):
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    ids = tokenizer(options.text.read_text(encoding="utf-8"), return_tensors="pt").input_ids
    return ids if options.tokens is None else ids[:, : options.tokens]


def show(before, done, total, began):
    """One line that is written over on a terminal, and a line per tenth elsewhere."""
    seconds = time.monotonic() - began
    text = f"{done} of {total} tokens, {seconds:.0f} s, about {seconds / done * (total - done):.0f} s left"
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="\n" if done == total else "", file=sys.stderr, flush=True)
    elif done * 10 // total != before * 10 // total:
        print(text, file=sys.stderr, flush=True)


@torch.inference_mode()
def read(model, ids, chunk):
    """Prefill, piece by piece."""
    parameters = inspect.signature(model.forward).parameters
    name = "cache" if "cache" in parameters else "past_key_values"
    options = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
    cache = transformers.DynamicCache(config=model.config)
    began = time.monotonic()
    for first in range(0, ids.shape[1], chunk):
        piece = ids[:, first : first + chunk]
        model(input_ids=piece.to(model.device), use_cache=True, **{name: cache}, **options)
        show(first, first + piece.shape[1], ids.shape[1], began)


def run(options):
    if not options.text.is_file():
        raise errors.NotFound(f"--text: there is no file {options.text}")
    ids = read_tokens(options)
    if ids.shape[1] == 0:
        raise errors.InvalidArgument(f"--text: {options.text} has no tokens")
    model = load_model(options)
    with record(model, options.out, what=options.what, every=options.every, layers=options.layers) as recording:
        read(model, ids, options.chunk)
        budgets = {layer.family.budget_tokens(layer.indexer) for layer in recording.indexed_layers}
    if ids.shape[1] < min(budgets):
        print(f"note: the text has {ids.shape[1]} tokens and the budget is {min(budgets)}: no row drops anything",
              file=sys.stderr)
    for path in recording.files:
        print(path)


def main(arguments=None):
    try:
        run(parse(arguments))
    except (errors.Error, OSError, ValueError) as error:
        print(f"seriatim.record: {error}", file=sys.stderr)
        return 2
    return 0
