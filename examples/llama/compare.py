#!/usr/bin/env python3
"""Random models of llama.cpp without and with the backend: verdicts on their rows, logits, times.

    compare.py --run llama_run --check seriatim --backend libggml-seriatim.so --models FOLDER [--tiny] [--tokens N]
               FAMILY...

Rows of an unmodified llama.cpp are judged by `--rule set`, since it means no order; with the backend by the whole rule.
Logits differ wherever a row differs, and a little where none does: sums are taken in another order.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import running


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("run", "check", "backend", "models"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("families", nargs="+")
    return parser.parse_args()


def verdicts(arguments, folder, rule):
    """Of all dumps in a folder: rows, and faults by promise."""
    rows, all_faults = 0, {}
    for dump in sorted(Path(folder).glob("*.safetensors")):
        verdict = running.judge(arguments.check, dump, rule)
        rows += verdict["rows"]
        for promise, count in running.faults(verdict).items():
            all_faults[promise] = all_faults.get(promise, 0) + count
    return rows, all_faults


def said(rows, found):
    if rows == 0:
        return "no rows"
    return f"{rows} rows: " + (", ".join(f"{name} {count}" for name, count in sorted(found.items())) or "conform")


def compare(arguments, family):
    tokens = arguments.tokens or (600 if arguments.tiny else 4096)
    budget = 256 if arguments.tiny else 2048
    name = f"{family}{'-tiny' if arguments.tiny else ''}-{budget}.gguf"
    model = running.make_model(family, Path(arguments.models) / name, tiny=arguments.tiny, budget=budget)
    options = {"tokens": tokens, "steps": 16, "ubatch": 512, "threads": arguments.threads}
    print(f"\n{family}, {tokens} tokens prefilled, budget {budget}, {arguments.threads} threads", flush=True)
    logits, times = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for engine, backend in (("llama.cpp", None), ("with Seriatim", arguments.backend)):
            dumps = Path(folder) / engine
            running.run(arguments.run, model, backend=backend, record=dumps, every=1 if arguments.tiny else 7,
                        **options)
            print(f"  {engine + ':':15} {said(*verdicts(arguments, dumps, 'canonical' if backend else 'set'))}",
                  flush=True)
            # Twice: the first run of a model reads its file.
            result = min((running.run(arguments.run, model, backend=backend, logits=Path(folder) / "l.npy", **options)
                          for _ in range(2)), key=lambda one: one.answer["prefill_ms"])
            logits[engine], times[engine] = result.logits, result
        plain, ours = times["llama.cpp"].answer, times["with Seriatim"].answer
        apart = running.distance(logits["llama.cpp"], logits["with Seriatim"])
        print(f"  logits differ by at most {apart:.1e} of the largest")
        for what, before, after in (
                ("prefill", plain["prefill_ms"], ours["prefill_ms"]),
                ("a decode step", statistics.median(plain["decode_ms"]), statistics.median(ours["decode_ms"]))):
            print(f"  {what + ':':15} {before:.1f} ms, with Seriatim {after:.1f} ms "
                  f"({before / after:.2f} times as fast)")
        print(f"  taken: {', '.join(f'{k} {v}' for k, v in times['with Seriatim'].counters.items()) or 'not counted'}")


def main():
    arguments = parse_arguments()
    Path(arguments.models).mkdir(parents=True, exist_ok=True)
    for family in arguments.families:
        compare(arguments, family)


if __name__ == "__main__":
    main()
