"""Everything examples/real_text measures, by one command; examples/real_text/run calls it.

    run.py [PART...] [--quick] [--context N] [--threads N] [--work DIR] [--out DIR]

PART is any of quality, stability, bits, speed, probe, plot, and all of them when none is given. Each result is kept in
the work folder when it is there; a run that was stopped goes on where it was. `--only NAME` measures one entry of
`speed`, for a machine that has to be quiet meanwhile. On a machine that others use too, `--threads 1` can be many times
faster: torch's threads wait for each other by spinning.
"""

import argparse
import json
import os
import platform
import tempfile
from pathlib import Path

import laboratory
import attention_bits
import probe
import quality
import smol
import speed
import stability

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("quality", "stability", "bits", "speed", "probe", "plot")


class Sizes:
    """Full: the model's whole context. Quick: the same path in a minute or two, on numbers that mean little."""

    def __init__(self, quick, context):
        self.context = context or (1024 if quick else smol.CONTEXT)
        self.prompt = 512 if quick else 1024
        self.steps = 24 if quick else 200
        self.stability_budget = 64 if quick else 256


def machine():
    import torch
    import transformers

    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
                 platform.machine())
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version(), "torch": torch.__version__,
            "transformers": transformers.__version__,
            "seriatim_kernels": laboratory.seriatim.default_engine().kernels}  # fmt: skip


def measure(lab, sizes, parts, only):
    found = {"machine": machine(), "sizes": vars(sizes)}
    if "quality" in parts:
        found["perplexity"] = quality.budget_table(lab, sizes.context)
        found["dense"] = quality.dense_agreement(lab, sizes.context)
    if "stability" in parts:
        found["generation"] = stability.generations(lab, sizes.prompt, sizes.steps, sizes.stability_budget)
    if "bits" in parts:
        found["attention_bits"] = attention_bits.attention_bits(lab, sizes.prompt, sizes.stability_budget)
    if "speed" in parts:
        found["speed"] = ({only: speed.speed(lab, only, sizes.context)} if only
                          else speed.speed_table(lab, sizes.context))
    if "probe" in parts:
        found["probe"] = lab.once(f"probe-{sizes.context}.json",
                                  lambda: probe.table(lab.model, lab.tokens(sizes.context), lab.centre))
    return found


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)}; default: all")
    options.add_argument("--quick", action="store_true", help="short texts: shows that everything runs")
    options.add_argument("--only", metavar="NAME", help="one entry of speed: eager, sdpa or Selective-BUDGET")
    options.add_argument("--context", type=int,
                         help=f"tokens of text for quality, speed and probe; default: {smol.CONTEXT}")
    options.add_argument("--threads", type=int, default=os.cpu_count(),
                         help="for all but what varies them; default: every core")
    options.add_argument("--work", type=Path, default=ROOT / "build" / "real_text", help="where results are kept")
    options.add_argument("--out", type=Path, help="where the table and the plot go; default: the work folder")
    options = options.parse_args()
    parts = options.parts or PARTS
    unknown = set(parts) - set(PARTS)
    if unknown:
        raise SystemExit(f"run: no part is named {sorted(unknown)[0]}; there are {', '.join(PARTS)}")
    work = options.work / ("quick" if options.quick else "full")
    out = options.out or work
    try:  # before hours of measuring, not after
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise SystemExit(f"run: {out}: cannot be written: {error.strerror}")
    lab = laboratory.Laboratory(options.work / "text", work, options.threads)
    found = measure(lab, Sizes(options.quick, options.context), set(parts), options.only)
    print(json.dumps({part: found[part] for part in found if part != "sizes"}, indent=1), flush=True)
    if "plot" in parts:
        import draw

        (out / "real_text.json").write_text(json.dumps(found, indent=1) + "\n")
        draw.draw(found, out / "real_text.svg")


if __name__ == "__main__":
    main()
