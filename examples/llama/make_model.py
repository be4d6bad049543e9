#!/usr/bin/env python3
"""Writes a small model of random weights for llama.cpp, of a family with sparse attention: for tests and benchmarks.

    make_model.py FAMILY OUT [--tiny] [--budget N] [--layers 4] [--width 256] [--seed 11] [--weights F32|F16|Q8_0|...]
                             [--tie]

FAMILY is one of qwen4exp, deepseek32, glm-dsa, dots3note, hy_v4, minimax-m3, glm5-next, deepseek4. The dims of index
and attention are the families' real ones; --tiny makes them small. --budget is in the family's own unit: tokens
(glm5-next: a multiple of 16), blocks of 128 (minimax-m3), entries of 4 (deepseek4). --tie: all scores of a query are
equal. There is no tokenizer; the tokens are 0 to 511. Needs gguf from PyPI (requirements.txt).
"""

import argparse

from model_families import FAMILIES
from model_parts import Model


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("out")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--budget", type=int)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256, help="of what stands between the layers")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--weights", default="F32", help="type of the projections")
    parser.add_argument("--tie", action="store_true")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    model = Model(arguments)
    FAMILIES[arguments.family](model)
    model.write()


if __name__ == "__main__":
    main()
