"""The four ways in, each as a user takes it, and what is said when one is closed."""

import os
import re
import subprocess
import sys

import pytest
import running


def call(*command, environment=None, check=True, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300,
                          env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done


def test_ggml_backend_load_in_c(built):
    assert "SERIATIM: " in call(built.load, built.backend).stdout


def test_a_file_that_is_no_backend_is_refused(built, tmp_path):
    (tmp_path / "no.so").write_text("nothing")
    assert call(built.load, tmp_path / "no.so", check=False).returncode == 1
    with pytest.raises(running.Failed, match="did not load this backend"):
        running.run(built.run, "unread", backend=tmp_path / "no.so")


def test_ggml_backend_path_of_programs_that_load_all_backends(built, model):
    """llama_run asks for them as llama-bench does."""
    result = running.run(built.run, model("deepseek32"), tokens=200, steps=2, threads=1,
                         environment={"GGML_BACKEND_PATH": str(built.backend)})
    assert "SERIATIM" in result.answer["engine"] and result.counters["attention"] > 0


PYTHON = """
import sys
import llama_cpp
before = llama_cpp.Llama(sys.argv[1], n_ctx=512, n_batch=128, n_ubatch=128, n_threads=1, flash_attn=True, verbose=False,
                         logits_all=True)
import seriatim.llama
print("devices", *seriatim.llama.load(*sys.argv[2:]))
assert seriatim.llama.load(*sys.argv[2:]) == seriatim.llama.load(*sys.argv[2:])
after = llama_cpp.Llama(sys.argv[1], n_ctx=512, n_batch=128, n_ubatch=128, n_threads=1, flash_attn=True, verbose=False,
                        logits_all=True)
tokens = [i * 7 % 512 for i in range(300)]
before.eval(tokens)
after.eval(tokens)
print("distance", abs(before.scores[:300] - after.scores[:300]).max() / abs(before.scores[:300]).max())
"""


def python(built, *arguments, **options):
    return call(sys.executable, "-c", PYTHON, *arguments, environment={
        "PYTHONPATH": str(built.package), "LLAMA_CPP_LIB_PATH": str(built.tools), **running.PATIENT},
        cwd=built.root, **options)


def test_seriatim_llama_load_before_llama_cpp_python(built, model):
    said = python(built, model("deepseek32")).stdout.splitlines()
    # Devices of type CPU come after others only in a context; in ggml's list they stand as they were registered.
    assert said[0] == "devices CPU SERIATIM"
    assert 0 < float(said[1].split()[1]) < 0.5  # other bits, so the backend was there; random weights amplify ties


def test_seriatim_llama_load_names_a_library_that_is_not_there(built, model):
    done = python(built, model("deepseek32"), "/nowhere/lib.so", check=False)
    assert done.returncode == 1 and "/nowhere/lib.so: the backend is not there" in done.stderr


def test_python_m_seriatim_llama_says_where_the_libraries_are(built):
    said = call(sys.executable, "-m", "seriatim.llama", cwd=built.root).stdout
    for line in said.splitlines():
        assert os.path.exists(line.split("=")[1])
    assert [line.split("=")[0] for line in said.splitlines()] == ["SERIATIM_GGML_LIBRARY", "SERIATIM_PRELOAD"]


def test_ld_preload_of_a_program_without_ggml_does_nothing(built):
    done = call("/bin/echo", "hello", environment={"LD_PRELOAD": str(built.preload)})
    assert (done.stdout, done.stderr) == ("hello\n", "")


def test_ld_preload_names_a_backend_that_is_not_there(built):
    done = call(built.load, built.backend, environment={
        "LD_PRELOAD": str(built.preload), "SERIATIM_GGML_LIBRARY": "/nowhere.so"})
    assert "seriatim: /nowhere.so was not loaded; llama.cpp runs without it" in done.stderr


LOADS_ITS_OWN = """
#include <stdio.h>
#include <stdlib.h>
size_t ggml_backend_reg_count(void) { return 0; }
void* ggml_backend_load(const char* path) { return printf("loaded %s", path), NULL; }
int main(void) { return puts(getenv("GGML_BACKEND_PATH")) == EOF; }
"""


def test_ld_preload_leaves_the_loading_to_a_program_without_backends_of_its_own(built, tmp_path):
    """Else llama.cpp, which then finds one backend, would not load the CPU's."""
    (tmp_path / "main.c").write_text(LOADS_ITS_OWN)
    call("cc", "-rdynamic", tmp_path / "main.c", "-o", tmp_path / "main")
    preload = {"LD_PRELOAD": str(built.preload)}
    assert call(tmp_path / "main", environment=preload).stdout == f"{built.preload.parent}/libggml-seriatim.so\n"
    assert call(tmp_path / "main", environment={**preload, "GGML_BACKEND_PATH": "/mine"}).stdout == "/mine\n"


def test_ld_preload_brings_the_backend(built, model):
    result = running.run(built.run, model("deepseek32"), tokens=200, steps=2, threads=1,
                         environment={"LD_PRELOAD": str(built.preload)})
    assert "SERIATIM" in result.answer["engine"] and result.counters["attention"] > 0


def tool(built, name):
    program = built.tools / name
    if not program.exists():
        pytest.skip(f"{name} was not built: scripts/llama --tools")
    return program


def test_llama_bench_reads_ggml_backend_path(built, model):
    bench = tool(built, "llama-bench")
    command = (bench, "-m", model("deepseek32"), "-p", "64", "-n", "4", "-r", "1", "-t", "1", "-fa", "on", "-v")
    done = call(*command, environment={"GGML_BACKEND_PATH": str(built.backend), "SERIATIM_GGML_COUNTERS": "1"})
    assert "seriatim: takes " in done.stderr
    assert "seriatim: takes " not in call(*command).stderr


def test_test_backend_ops_finds_no_fault(built):
    program = tool(built, "test-backend-ops")
    for op in ("TOP_K", "LIGHTNING_INDEXER", "FLASH_ATTN_EXT"):
        done = call(program, "test", "-b", "SERIATIM", "-o", op,
                    environment={"GGML_BACKEND_PATH": str(built.backend)})
        assert re.search(r"([1-9]\d*)/\1 tests passed", done.stdout), done.stdout[-800:]


@pytest.mark.parametrize("name", ["llama-completion", "llama-cli", "llama-server"])
def test_ld_preload_brings_the_backend_to_llama_cpps_own_programs(built, model, name):
    """As far as the context, and with flash attention still on: the models have no words to go on with."""
    command = [tool(built, name), "-m", model("deepseek32"), "-t", "1", "-c", "512", "-v"]
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace",
                               env={**os.environ, "LD_PRELOAD": str(built.preload), **running.PATIENT})
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if "resolve_fused_ops: Flash Attention" in line:
                break
    finally:
        process.kill()
        process.wait()
    text = "".join(said)
    assert "loaded SERIATIM backend from" in text and "seriatim: takes TOP_K" in text
    assert "Flash Attention enabled" in said[-1] and "Flash Attention not supported" not in text
