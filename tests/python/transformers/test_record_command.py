"""python -m seriatim.record: a checkpoint, a text, a folder of dumps."""

import os
import subprocess
import sys

import pytest
import torch
from transformers import PreTrainedTokenizerFast

tokenizers = pytest.importorskip("tokenizers")

from seriatim.transformers.recording import command
from support_dumps import KNOWN, broken_by, judge_dump, read_dump
from support_indexers import make_model

TEXT = "Top-k chooses the set, time chooses the order. " * 2


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A deepseek_v32 that reads characters."""
    folder = tmp_path_factory.mktemp("checkpoint")
    make_model("deepseek_v32").save_pretrained(folder)
    letters = {letter: number for number, letter in enumerate(["?", *sorted(set(TEXT))])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(letters, unk_token="?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained(folder)
    text = folder / "text.txt"
    text.write_text(TEXT, encoding="utf-8")
    return folder


def arguments(checkpoint, out, *more):
    return ["--model", str(checkpoint), "--text", str(checkpoint / "text.txt"), "--out", str(out), *more]


def test_the_command_reads_a_text_and_names_the_files(checkpoint, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "seriatim.record", *arguments(checkpoint, tmp_path, "--what", "both", "--chunk", "20",
                                                             "--layers", "1")],
        capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stderr
    dump, capture = done.stdout.splitlines()
    assert (dump, capture) == (f"{tmp_path}/layer_01.safetensors", f"{tmp_path}/layer_01_capture.safetensors")
    assert f"{len(TEXT)} of {len(TEXT)} tokens" in done.stderr
    assert "Warning" not in done.stderr.replace("FutureWarning", "")
    assert len(read_dump(dump)[0]["rows"]) == len(TEXT) and broken_by(judge_dump(dump)) <= KNOWN


def test_tokens_every_dtype_and_a_text_below_the_budget(checkpoint, tmp_path, capsys):
    options = ("--tokens", "12", "--every", "4", "--dtype", "bfloat16", "--attention", "sdpa")
    assert command.main(arguments(checkpoint, tmp_path, *options)) == 0
    said = capsys.readouterr()
    assert "12 tokens and the budget is 16: no row drops anything" in said.err and len(said.out.splitlines()) == 2
    tensors, _ = read_dump(tmp_path / "layer_00.safetensors")
    assert tensors["visible"].tolist() == [1, 5, 9]
    assert not torch.is_inference_mode_enabled()


def test_bad_input_is_named_and_ends_with_2(checkpoint, tmp_path, capsys):
    bad = [
        (("--text", str(tmp_path / "no.txt")), "there is no file"),
        (("--layers", "5"), "layer 5 does not select"),
        (("--every", "0"), "every is 0"),
    ]
    for options, what in bad:
        assert command.main(arguments(checkpoint, tmp_path / "out", *options)) == 2
        assert what in capsys.readouterr().err
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    assert command.main(arguments(checkpoint, tmp_path / "out", "--text", str(empty))) == 2
    assert "has no tokens" in capsys.readouterr().err
