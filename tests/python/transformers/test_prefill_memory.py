"""The mask of queries x keys is never built: what a prefill of 16,384 tokens takes at its peak."""

import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = """
import sys, torch
sys.path[:0] = [{here!r}, {oracle!r}]
import seriatim.transformers as st
from support_models import INDEXED, draw_ids, make_model
model = make_model(layers=[INDEXED, INDEXED])
def kibibytes(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))
with torch.inference_mode():
    st.enable(model)
    model(draw_ids(1, 64), logits_to_keep=1)
    open("/proc/self/clear_refs", "w").write("5")  # the peak starts over
    before = kibibytes("VmRSS")
    model(draw_ids(1, 16384), logits_to_keep=1)
    print((kibibytes("VmHWM") - before) * 1024)
"""

MASK_BYTES = 16384 * 16384  # one byte an entry; eager holds four


@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="AddressSanitizer multiplies all memory")
def test_a_prefill_of_16384_tokens_peaks_far_below_one_mask():
    here = pathlib.Path(__file__).resolve().parent
    program = PROGRAM.format(here=str(here), oracle=str(here.parent.parent / "oracle"))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    grown = int(done.stdout.split()[-1])
    print(f"peak memory grew by {grown / 2**20:.0f} MiB; a mask of booleans alone is {MASK_BYTES / 2**20:.0f} MiB")
    assert 2**20 < grown < MASK_BYTES
