"""What surrounds the calls: geometry, documentation that runs, stubs, types, references."""

import doctest
import gc
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import seriatim
from support_layers import ROOT, SMALL, Tokens, filled

PACKAGE = ROOT / "python" / "seriatim"


def test_geometry_says_what_it_is_and_compares():
    geometry = seriatim.Geometry(**SMALL)
    assert eval(repr(geometry), {"Geometry": seriatim.Geometry}) == geometry != seriatim.Geometry()
    assert hash(geometry) == hash(seriatim.Geometry(**SMALL))
    assert (geometry.budget_groups, geometry.row_capacity, geometry.value_dim) == (4, 19, 8)
    with pytest.raises(seriatim.InvalidArgument) as caught:
        seriatim.Geometry(query_heads=3)
    assert caught.value.argument == "query_heads"
    with pytest.raises(seriatim.InvalidArgument, match="none of after_sum"):
        seriatim.Geometry(scale_at="somewhere")


def test_a_qwen4_exp_configuration_gives_its_geometry():
    transformers = pytest.importorskip("transformers")
    from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpTextConfig

    config = Qwen4ExpTextConfig(num_attention_heads=4, num_key_value_heads=2, head_dim=32, indexer_n_heads=2,
                                indexer_kv_heads=1,
                                indexer_head_dim=32, indexer_budget=64, indexer_compress_ratio=4, num_hidden_layers=4)
    geometry = seriatim.Geometry.from_config(config, kv_dtype="bf16")
    rotary = int(32 * config.rope_parameters.get("partial_rotary_factor", 1.0))
    assert geometry == seriatim.Geometry(query_heads=4, head_dim=32, index_heads=2, index_dim=32, budget_tokens=64,
                                         index_rotary_dim=rotary,
                                         rope_theta=config.rope_parameters["rope_theta"], kv_dtype="bf16")
    with pytest.raises(seriatim.Unsupported, match="LlamaConfig"):
        seriatim.Geometry.from_config(transformers.LlamaConfig())


def documented():
    from seriatim import _core, errors, _types

    for module in (_core, errors, _types):
        for name, thing in sorted(vars(module).items()):
            if name.startswith("_") or not getattr(thing, "__module__", "").startswith("seriatim"):
                continue
            if getattr(thing, "__doc__", None):
                yield f"{module.__name__}.{name}", thing.__doc__
                for member, inner in sorted(vars(thing).items() if isinstance(thing, type) else ()):
                    if not member.startswith("_") and isinstance(getattr(inner, "__doc__", None), str):
                        yield f"{module.__name__}.{name}.{member}", inner.__doc__


def test_the_examples_of_the_docstrings_run():
    runner, parser = doctest.DocTestRunner(verbose=False), doctest.DocTestParser()
    names = {"np": np, "seriatim": seriatim}
    ran = set()
    for name, text in documented():
        test = parser.get_doctest(text, dict(names), name, None, None)
        if test.examples:
            ran.add(name)
            runner.run(test)
    assert runner.failures == 0
    for needed in ("select", "score", "attend", "pool_keys", "prepare_index_queries", "Geometry", "Cache", "Engine",
                   "Engine.plan", "borrow", "Transaction", "kernels"):
        assert f"seriatim._core.{needed}" in ran, needed


def test_every_public_name_is_documented():
    missing = [name for name in seriatim.__all__ if not name.startswith("__") and not getattr(seriatim, name).__doc__]
    assert missing == []
    assert sorted(seriatim.__all__) == sorted(set(seriatim.__all__))
    assert all(hasattr(seriatim, name) for name in seriatim.__all__)


def test_the_stub_is_what_the_module_says(tmp_path):
    made = tmp_path / "_core.pyi"
    subprocess.run([sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "seriatim._core", "-o", made], check=True)
    golden = PACKAGE / "_core.pyi"
    command = f"python -m nanobind.stubgen -m seriatim._core -o {golden.relative_to(ROOT)}"
    assert made.read_text() == golden.read_text(), command


def test_the_package_and_its_examples_pass_the_type_checker():
    pytest.importorskip("mypy")
    if "asan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("nothing of ours runs in the type checker")
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    assert done.returncode == 0 and "no issues found" in done.stdout, done.stdout


def test_the_example_prints_what_its_text_says():
    example = ROOT / "examples" / "python" / "the_rule.py"
    done = subprocess.run([sys.executable, example], text=True, stdout=subprocess.PIPE, check=True)
    said = [line[3:] for line in example.read_text().splitlines() if line.startswith("#> ")]
    assert done.stdout.splitlines() == said and len(said) > 10


def test_no_call_keeps_a_reference():
    geometry, tokens = seriatim.Geometry(**SMALL), Tokens(40)
    cache, user = filled(geometry, tokens)
    scores = np.zeros((2, 9), np.float32)

    def every_call():
        seriatim.select(scores)
        layer = user.layer(0)
        rows = layer.plan(tokens.index_queries, np.arange(40))
        layer.attend(tokens.queries, np.arange(40), rows, return_lse=True)
        seriatim.attend(tokens.queries, tokens.keys, tokens.values, rows, np.arange(40))
        seriatim.score(geometry, tokens.index_queries, seriatim.pool_keys(geometry, tokens.index_keys))
        for bad in (lambda: seriatim.select("no"), lambda: user.truncate(99),
                    lambda: seriatim.attend(tokens.queries, scores, scores, rows)):
            try:
                bad()
            except seriatim.Error:
                pass
        with cache.begin() as step:
            step.rollback()

    watched = [scores, tokens.keys, tokens.queries, tokens.index_queries, geometry, cache, user]
    every_call()
    gc.collect()
    counts, objects = [sys.getrefcount(one) for one in watched], len(gc.get_objects())
    for _ in range(200):
        every_call()
    gc.collect()
    assert [sys.getrefcount(one) for one in watched] == counts
    assert len(gc.get_objects()) < objects + 100


def test_a_free_threaded_python_is_refused():
    program = ("import sysconfig; asked = sysconfig.get_config_var; "
               "sysconfig.get_config_var = lambda name: 1 if name == 'Py_GIL_DISABLED' else asked(name); "
               "import seriatim")
    done = subprocess.run([sys.executable, "-c", program], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    refusal = "ImportError: seriatim has not been run without the interpreter's lock"
    assert done.returncode == 1 and refusal in done.stdout, done.stdout


def test_a_forked_process_computes_the_same():
    scores = np.random.default_rng(0).standard_normal((8, 500)).astype(np.float32)
    wanted = seriatim.select(scores, budget_tokens=64).positions.tobytes()
    child = os.fork()
    if child == 0:
        os._exit(0 if seriatim.select(scores, budget_tokens=64).positions.tobytes() == wanted else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_page_of_what_others_do_names_tests_that_exist():
    import re

    page = (ROOT / "docs" / "hostile.md").read_text().split("## Python and torch")[1].split("\n## ")[0]
    tests = "".join(path.read_text() for path in (ROOT / "tests" / "python").glob("**/test_*.py"))
    cells = [line.split("|")[3] for line in page.splitlines() if line.startswith("|") and "---" not in line]
    named = [name for cell in cells for name in re.findall(r"`(\w+?)_?(?:\.\.\.)?`", cell)]
    assert len(named) > 40
    assert [name for name in named if f"def test_{name}" not in tests] == []
    assert all("`" in cell or "the same" in cell or "none" in cell or cell.strip() == "test" for cell in cells)


@pytest.mark.parametrize("name", ["README.md", "docs/python.md"])
def test_the_python_of_the_documents_runs(name):
    import re

    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(), re.MULTILINE | re.DOTALL)
    ours = [block for block in blocks if "transformers" not in block]
    assert ours
    for block in ours:
        exec(compile(block, name, "exec"), {})
