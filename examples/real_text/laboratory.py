"""What every measurement shares: the model, the text, results on disk and a line of progress."""

import functools
import json
import sys
import time
from pathlib import Path

import torch

import attention
import greedy
import seriatim
import smol
from index_keys import IndexKeys, measure_centre

CENTRE_TOKENS = 512


class Progress:
    """A bar on a terminal that follows the layers of a forward; elsewhere a line per finished step."""

    def __init__(self):
        self.on_terminal = sys.stderr.isatty()
        self.title = ""

    def begin(self, title):
        """Gives what end() takes: measurements may nest."""
        outer, self.title = self.title, title
        return outer, time.monotonic()

    def layer(self, done, layers):
        if self.on_terminal:
            filled = 30 * done // layers
            print(f"\r\033[K{self.title} [{'#' * filled}{'.' * (30 - filled)}]", end="", file=sys.stderr, flush=True)

    def end(self, begun):
        outer, at = begun
        clear = "\r\033[K" if self.on_terminal else ""
        print(f"{clear}{self.title}: {time.monotonic() - at:.0f} s", file=sys.stderr, flush=True)
        self.title = outer


class Laboratory:
    def __init__(self, package, work, threads=1):
        self.package = package
        self.work = Path(work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.progress = Progress()
        torch.set_grad_enabled(False)
        self.threads = threads
        self.set_threads(threads)

    def set_threads(self, of_torch, of_seriatim=None):
        torch.set_num_threads(of_torch)
        attention.engine = seriatim.Engine(threads=of_seriatim or of_torch)

    @functools.cached_property
    def model(self):
        return smol.load_model()

    @property
    def layers(self):
        return self.model.config.num_hidden_layers

    @functools.cache
    def tokens(self, count):
        return smol.novel_tokens(self.package, "persuasion", count)

    @functools.cached_property
    def centre(self):
        return self.once("centre.pt",
                         lambda: measure_centre(self.model, smol.novel_tokens(self.package, "emma", CENTRE_TOKENS)))

    def index_keys(self):
        return IndexKeys(self.centre)

    def plain_index_keys(self):
        """Keys after RoPE as they are: nothing taken off, nothing shared."""
        return IndexKeys(torch.zeros_like(self.centre), share_first=False)

    def ours(self, kind, budget, sequences=1, index_keys=None):
        """One of attention.py's classes as the model's attention, and as something that generates."""
        made = kind(index_keys or self.index_keys(), budget, self.layers, sequences)

        def with_progress(module, *arguments, **options):
            self.progress.layer(module.layer_idx, self.layers)
            return made(module, *arguments, **options)

        remembering = greedy.Remembering("seriatim", with_progress)
        remembering.made = made
        return remembering

    def once(self, name, measure):
        """What `measure` gave when it was first run; results outlive the process. Named .json or .pt."""
        path = self.work / name
        plain = path.suffix == ".json"
        if path.exists():
            return json.loads(path.read_text()) if plain else torch.load(path)
        begun = self.progress.begin(name)
        result = measure()
        partial = path.with_suffix(".partial")
        if plain:
            partial.write_text(json.dumps(result, indent=1) + "\n")
        else:
            torch.save(result, partial)
        partial.rename(path)
        self.progress.end(begun)
        return result
