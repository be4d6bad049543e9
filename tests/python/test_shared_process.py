"""In a process that others share: names of files, pickles, threads that end with the interpreter, signals, modes of the
process."""

import copy
import multiprocessing
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import seriatim
from support_layers import SMALL, Tokens, filled


@pytest.fixture
def cache(geometry, tokens):
    return filled(geometry, tokens)[0]


def test_a_path_with_a_nul_is_refused_as_open_does(cache, tmp_path):
    for call in (cache.save, cache.restore, seriatim.cache_file_info, seriatim.verify_cache_file):
        for path in (f"{tmp_path}/a\0b", os.fsencode(tmp_path) + b"/a\0b", pathlib.Path(f"{tmp_path}/a\0b")):
            with pytest.raises(ValueError, match="null byte"):
                call(path)
        for no_path in (None, 3, object()):
            with pytest.raises(TypeError):
                call(no_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", [str, os.fsencode, pathlib.Path], ids=["str", "bytes", "PathLike"])
def test_any_name_that_listdir_gives_is_taken(cache, geometry, tmp_path, kind):
    name = os.fsdecode(b"caf\xe9 \n\x1b[31m.cache")  # Latin-1, which is no UTF-8
    path = kind(os.path.join(tmp_path, name))
    cache.save(path)
    assert os.listdir(tmp_path) == [name]
    seriatim.verify_cache_file(path)
    assert len(seriatim.cache_file_info(path).sequences) == 1
    other = seriatim.Cache(geometry, capacity_tokens=4096)
    assert [len(sequence) for sequence in other.restore(path).values()] == [75]
    os.truncate(path, 100)
    for call in (other.restore, seriatim.cache_file_info, seriatim.verify_cache_file):
        with pytest.raises(seriatim.Error) as caught:
            call(path)
        str(caught.value).encode()  # a message can be printed, whatever the name is
    with pytest.raises(seriatim.Error) as caught:
        seriatim.verify_cache_file(kind(os.path.join(tmp_path, os.fsdecode(b"\xff"))))
    str(caught.value).encode()


GEOMETRIES = [
    {}, SMALL, dict(SMALL, index_rotary_dim=0, scale_at="before_relu", relu=False, pooling="none", group_tokens=1),
    dict(SMALL, rope_axes=[0, 2], inv_freq=[1.0, 0.1], softmax_scale=0.3, norm_eps=1e-5, kv_dtype="bf16",
         index_dtype="f16"),
    dict(SMALL, kv_heads=1, head_dim=12, value_dim=8, values_alias_keys=True),
]


@pytest.mark.parametrize("options", GEOMETRIES, ids=str)
def test_a_geometry_travels(options):
    geometry = seriatim.Geometry(**options)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        arrived = pickle.loads(pickle.dumps(geometry, protocol))
        assert arrived == geometry and repr(arrived) == repr(geometry) and hash(arrived) == hash(geometry)
        assert arrived.inv_freq == geometry.inv_freq and arrived.rope_axes == geometry.rope_axes
    assert copy.copy(geometry) == copy.deepcopy(geometry) == geometry


def test_a_geometry_of_a_damaged_pickle_is_refused():
    state = seriatim.Geometry().__getstate__()
    for damage in ({"budget_tokens": 3}, {"query_heads": -1}, {"kv_dtype": "i8"}):
        empty = seriatim.Geometry.__new__(seriatim.Geometry)
        with pytest.raises(seriatim.InvalidArgument):
            empty.__setstate__({**state, **damage})
    with pytest.raises(TypeError):
        seriatim.Geometry.__new__(seriatim.Geometry).__setstate__({**state, "new_option": 1})


def test_errors_reports_and_rows_travel():
    with pytest.raises(seriatim.NotANumber) as caught:
        seriatim.select(np.full((1, 3), np.nan, np.float32))
    arrived = pickle.loads(pickle.dumps(caught.value))
    assert (type(arrived), str(arrived), arrived.argument, arrived.row) == (seriatim.NotANumber, str(caught.value),
                                                                            "scores", 0)
    rows = seriatim.select(np.ones((2, 9), np.float32), budget_tokens=8)
    arrived = pickle.loads(pickle.dumps(rows))
    assert type(arrived) is seriatim.Rows and arrived.positions.tobytes() == rows.positions.tobytes()
    report = seriatim.check(rows, visible=[36, 36], budget_tokens=8)
    assert pickle.loads(pickle.dumps(report)) == report


def test_what_holds_memory_says_that_it_does_not_travel(cache, geometry):
    for held in (cache, cache.add()):
        with pytest.raises(TypeError, match="cannot pickle"):
            pickle.dumps(held)


def _counts(geometry, scores, to):
    to.put((geometry.budget_tokens, seriatim.select(scores, budget_tokens=8).counts.tolist()))


def test_a_spawned_process_takes_geometries_and_computes():
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    worker = context.Process(target=_counts, args=(seriatim.Geometry(**SMALL), np.ones((2, 9), np.float32), answers))
    worker.start()
    worker.join(120)
    assert worker.exitcode == 0 and answers.get() == (16, [8, 8])


DAEMONS = """
import sys, threading, time
import numpy as np, seriatim
scores = np.random.default_rng(0).standard_normal((400, 2000)).astype(np.float32)
geometry = seriatim.Geometry(budget_tokens=16, query_heads=2, kv_heads=1, head_dim=8, index_heads=2, index_dim=16,
                             index_rotary_dim=8)
cache = seriatim.Cache(geometry, capacity_tokens=512)
user = cache.add()
with cache.begin() as step:
    ones = np.ones((100, 1, 8), np.float32)
    step.append(user, 0, ones, ones, np.ones((100, 16), np.float32))
def work():
    while True:
        seriatim.select(scores)
        user.layer(0).plan(np.ones((100, 2, 16), np.float32), np.arange(100))
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("status", [0, 7])
def test_daemon_threads_within_calls_leave_the_programs_status_alone(status):
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", DAEMONS, str(status)], capture_output=True, text=True, timeout=120)
        assert done.returncode == status and "terminate" not in done.stderr, done.stderr


def test_calls_work_in_threads_of_little_stack_and_within_signal_handlers(geometry, tokens):
    user = filled(geometry, tokens)[1]
    layer, at = user.layer(0), np.arange(75)

    def work():
        rows = layer.plan(tokens.index_queries, at)
        return rows.positions.tobytes(), layer.attend(tokens.queries, at, rows).tobytes()

    wanted, got = work(), []
    sanitized = "asan" in os.environ.get("LD_PRELOAD", "")  # whose frames are many times as large
    before = threading.stack_size((1024 if sanitized else 64) * 1024)
    try:
        thread = threading.Thread(target=lambda: got.append(work()))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    previous = signal.signal(signal.SIGALRM, lambda *_: got.append(work()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        while len(got) < 6:
            assert work() == wanted
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert set(got) == {wanted}


FAULT_HANDLER = """
import faulthandler, os, sys
import numpy as np, seriatim
faulthandler.enable()  # before the file is mapped: what installs a handler later owns the signal
geometry = seriatim.Geometry(budget_tokens=16, query_heads=2, kv_heads=1, head_dim=8, index_heads=2, index_dim=16,
                             index_rotary_dim=8)
cache = seriatim.Cache(geometry, capacity_tokens=4096)
ones = lambda *shape: np.ones(shape, np.float32)
with cache.begin() as step:
    step.append(cache.add(), 0, ones(1000, 1, 8), ones(1000, 1, 8), ones(1000, 16))
cache.save(sys.argv[1])
[user] = seriatim.Cache(geometry, capacity_tokens=4096).restore(sys.argv[1], mode="map").values()
os.truncate(sys.argv[1], 4096)
try:
    user.layer(0).plan(ones(1000, 2, 16), np.arange(1000))
except seriatim.Io as error:
    print(error)
"""


def test_a_fault_handler_that_was_there_first_does_not_mind_a_mapped_file_that_is_cut(tmp_path):
    done = subprocess.run([sys.executable, "-c", FAULT_HANDLER, tmp_path / "cache"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and "was cut short" in done.stdout


def test_the_decimal_point_of_a_locale_changes_no_representation(tmp_path):
    if not shutil.which("localedef"):
        pytest.skip("no localedef to make a locale with a decimal comma")
    made = subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", tmp_path / "de_DE.UTF-8"], capture_output=True)
    if not (tmp_path / "de_DE.UTF-8").exists():
        pytest.skip(f"localedef has no de_DE: {made.stderr!r}")
    program = ("import locale, seriatim; locale.setlocale(locale.LC_ALL, 'de_DE.UTF-8'); "
               "assert locale.localeconv()['decimal_point'] == ','; "
               "print(repr(seriatim.Geometry(softmax_scale=0.3, rope_theta=1.5e6)))")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          env={**os.environ, "LOCPATH": str(tmp_path)})
    assert done.stdout == repr(seriatim.Geometry(softmax_scale=0.3)) + "\n", done.stderr


def test_an_interrupt_arrives_after_the_call_and_harms_nothing():
    scores = np.random.default_rng(0).standard_normal((300, 20000)).astype(np.float32)
    wanted = seriatim.select(scores, budget_tokens=64)
    out = tuple(np.zeros_like(one) for one in wanted)
    interrupted = False
    timer = threading.Timer(0.002, lambda: os.kill(os.getpid(), signal.SIGINT))
    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        timer.start()
        end = time.monotonic() + 60
        while time.monotonic() < end:
            seriatim.select(scores, budget_tokens=64, out=out)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        timer.join()
        signal.signal(signal.SIGINT, former)
    assert interrupted
    seriatim.select(scores, budget_tokens=64, out=out)
    assert all(one.tobytes() == other.tobytes() for one, other in zip(out, wanted))


def test_threads_that_call_one_object_at_once_get_what_one_alone_gets(geometry, tokens):
    cache, user = filled(geometry, tokens)
    layer, engine, at = user.layer(0), seriatim.Engine(threads=1), np.arange(75)
    rows = layer.plan(tokens.index_queries, at)
    wanted = rows.positions.tobytes(), layer.attend(tokens.queries, at, rows).tobytes()
    wrong = []

    def work(shared):
        for _ in range(30):
            got = layer.plan(tokens.index_queries, at, engine=shared)
            output = layer.attend(tokens.queries, at, got, engine=shared)
            if (got.positions.tobytes(), output.tobytes()) != wanted:
                wrong.append(1)

    threads = [threading.Thread(target=work, args=(shared,)) for shared in (None, engine, engine, None)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_subinterpreter_refuses_the_extension_and_the_process_goes_on():
    interpreters = pytest.importorskip("_xxsubinterpreters")
    made = interpreters.create()
    program = "try:\n    import seriatim._core\nexcept ImportError:\n    pass\nelse:\n    raise SystemExit('imported')"
    try:
        interpreters.run_string(made, program)
    except interpreters.RunFailedError as error:
        pytest.fail(str(error))
    finally:
        interpreters.destroy(made)
    assert seriatim.select(np.ones((1, 9), np.float32), budget_tokens=8).counts.tolist() == [8]


def test_flush_to_zero_in_the_process_changes_neither_rows_nor_bits():
    torch = pytest.importorskip("torch")
    scores = np.zeros((1, 64), np.float32)
    scores[0, 40] = 1e-40  # a subnormal: the best group
    random = np.random.default_rng(1)
    keys, values, queries = (random.standard_normal(shape).astype(np.float32)
                             for shape in ((200, 1, 8), (200, 1, 8), (40, 2, 8)))
    values *= np.float32(1e-38)  # outputs are subnormal

    def answers(engine):
        rows = np.tile(np.arange(200, dtype=np.int32), (40, 1)), np.full(40, 200, np.int32)
        output = seriatim.attend(queries, keys, values, rows, engine=engine)
        return seriatim.select(scores, group_tokens=1, budget_tokens=4).positions[0].tolist(), output.tobytes()

    before = seriatim.Engine(threads=2)
    usual = answers(before)
    assert usual[0] == [0, 1, 2, 40] and 0 < np.abs(np.frombuffer(usual[1], np.float32)).max() < 1e-37
    torch.set_flush_denormal(True)
    try:
        during = seriatim.Engine(threads=2)
        assert answers(before) == answers(during) == answers(seriatim.Engine(threads=1)) == usual
    finally:
        torch.set_flush_denormal(False)
    assert answers(during) == usual
