"""Opens the pages of `seriatim check --html` and `seriatim run --html` from disk in a real browser.

    check_page.py --seriatim BIN --chromium BIN --captures DIR --artefacts DIR

A script is added to a copy of each page. It counts the marks, clicks and presses keys, and leaves what it saw in the
document, which the browser prints. Screenshots stay in the artefacts folder.
"""

import argparse
import html
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
from safetensors_file import Tensor, save  # noqa: E402

LIMIT_BYTES = 2_000_000
HOSTILE = ("</script><script>document.documentElement.dataset.hacked='1'</script>"
           "<img src=x onerror=\"document.documentElement.dataset.hacked='2'\">"
           "' \" \\ \u2028 \u2029 <!-- @SCRIPT@ &lt;")
FAULTS = []
CHECKS = 0

LISTENER = ("<script>window.seen = {errors: []}; "
            "addEventListener('error', e => seen.errors.push(String(e.message)));</script>")
VISITOR = """<script>
const key = name => document.getElementById('picture').dispatchEvent(
  new KeyboardEvent('keydown', {key: name, bubbles: true}));
const text = id => document.getElementById(id).textContent;
seen.ready = document.documentElement.dataset.ready;
seen.hacked = document.documentElement.dataset.hacked || '';
seen.title = text('title');
seen.marks = [...document.querySelectorAll('.mark')].map(m => [Number(m.dataset.row), m.dataset.promise]);
seen.unlabelled = [...document.querySelectorAll('button, img, canvas, select')].filter(
  e => !(e.getAttribute('aria-label') || e.alt || e.textContent.trim() || e.labels?.length)).length;
seen.charts = [...document.querySelectorAll('canvas')].map(c => c.getAttribute('aria-label'));
seen.image = document.getElementById('image').naturalWidth;
const verdicts = document.querySelectorAll('#findings button');
if (verdicts.length) {
  verdicts[verdicts.length - 1].click();
  seen.clicked = [text('row-heading'), text('readout'), document.querySelectorAll('tr.chosen').length,
                  document.querySelectorAll('.mark.chosen').length];
}
const marks = document.querySelectorAll('.mark');
if (marks.length) { marks[0].click(); seen.marked = [text('row-heading'), document.querySelector('tr.chosen').id]; }
document.getElementById('picture').focus();
for (let i = 0; i < 5000; ++i) key('ArrowUp');
key('Home');
seen.top = text('readout');
key('ArrowDown'); key('PageDown');
seen.second = text('readout');
key('End');
seen.last = text('readout');
key('Enter');
seen.entered = text('row-heading');
document.documentElement.dataset.seen = JSON.stringify(seen);
</script>"""


def expect(condition, what):
    global CHECKS
    CHECKS += 1
    if not condition:
        FAULTS.append(what)


def browse(chromium, page, folder, screenshot=None, dark=False):
    """What the visitor saw, and the console."""
    text = page.read_text(encoding="utf-8")
    visited = folder / "visited.html"
    visited.write_text(text.replace("<head>", "<head>" + LISTENER, 1).replace("</body>", VISITOR + "</body>"),
                       encoding="utf-8")
    common = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
              "--virtual-time-budget=8000", "--window-size=1200,2400",
              f"--user-data-dir={folder / 'profile'}", *(["--blink-settings=preferredColorScheme=0"] if dark else [])]
    done = subprocess.run([*common, "--dump-dom", visited.as_uri()], text=True, capture_output=True, check=False,
                          timeout=120)
    found = re.search(r'data-seen="([^"]*)"', done.stdout)
    expect(found is not None, f"{page.name}: the visitor saw nothing: {done.stderr[-2000:]}")
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    expect(console == [], f"{page.name}: the console says {console}")
    if screenshot:
        subprocess.run([*common, f"--screenshot={screenshot}", page.as_uri()], capture_output=True, check=True,
                       timeout=120)
        expect(screenshot.stat().st_size > 20_000, f"{page.name}: an empty screenshot")
    return json.loads(html.unescape(found.group(1))) if found else None


def check_page(chromium, page, report, folder, **options):
    text = page.read_bytes()
    expect(len(text) < LIMIT_BYTES, f"{page.name}: {len(text)} bytes")
    expect(not re.search(rb"(src|href)\s*=\s*[\"']?(https?:)?//", text), f"{page.name}: asks for the network")
    seen = browse(chromium, page, folder, **options)
    if seen is None:
        return
    name = page.name
    expect(seen["errors"] == [] and seen["ready"] == "yes", f"{name}: errors {seen['errors']}, ready {seen['ready']}")
    expect(seen["hacked"] == "", f"{name}: a hostile string ran")
    expect(seen["title"] == f"Rows of {report['engine'] or report['dump']}", f"{name}: the title is {seen['title']!r}")
    expect(sorted(seen["marks"]) == sorted([f["row"], f["promise"]] for f in report["findings"]),
           f"{name}: {len(seen['marks'])} marks for {len(report['findings'])} findings")
    expect(seen["unlabelled"] == 0, f"{name}: {seen['unlabelled']} things without a name")
    expect(len(seen["charts"]) == 3 and all(seen["charts"]), f"{name}: charts are described as {seen['charts']}")
    expect(seen["image"] > 0, f"{name}: no image")
    if report["findings"]:
        last = report["findings"][-1]["row"]
        expect(seen["clicked"][0] == f"Row {last}" and seen["clicked"][1].startswith(f"Row {last}:"),
               f"{name}: a click on row {last} brought {seen['clicked']}")
        expect(seen["clicked"][2] == 1 and seen["clicked"][3] >= 1, f"{name}: the click chose {seen['clicked'][2:]}")
        expect(seen["marked"] == [f"Row {report['findings'][0]['row']}", "finding-0"],
               f"{name}: a click on the first mark brought {seen['marked']}")
    expect(seen["top"].startswith("Row 0:"), f"{name}: the keys went to {seen['top']!r}")
    expect(seen["second"] != seen["top"] and seen["last"] != seen["second"], f"{name}: the keys do not move")
    expect(seen["entered"] == seen["last"].split(":")[0], f"{name}: Enter brought {seen['entered']!r}")


def large_dump(path, queries=4096):
    """More rows than any picture needs, of a budget as QSA's, with faults in every fourth."""
    rng = np.random.default_rng(3)
    visible = np.linspace(1, 16384, queries).astype("<i8")
    rows = np.full((queries, 2051), -1, "<i4")
    scores = rng.random((queries, 4096), dtype="<f4")
    for q, n in enumerate(visible):
        groups = n // 4
        best = np.sort(np.argpartition(-scores[q, :groups], 511)[:512]) if groups > 512 else np.arange(groups)
        row = np.append((best[:, None] * 4 + np.arange(4)).ravel(), np.arange(groups * 4, n))
        rows[q, : len(row)] = row
        if q % 4 == 3:
            rows[q, rng.integers(len(row))] = n + q
    save(path, {"rows": Tensor("I32", rows), "visible": Tensor("I64", visible), "scores": Tensor("F32", scores)},
         {"seriatim": "selection/1", "group_tokens": "4", "budget_tokens": "2048", "engine": HOSTILE})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seriatim", required=True)
    parser.add_argument("--chromium", required=True)
    parser.add_argument("--captures", type=pathlib.Path, required=True)
    parser.add_argument("--artefacts", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    arguments.artefacts.mkdir(parents=True, exist_ok=True)

    def check(dump, page, code):
        done = subprocess.run([arguments.seriatim, "check", dump, "--html", page, "--json", "-"], text=True,
                              capture_output=True, check=False)
        expect(done.returncode == code and done.stderr == "", f"{dump.name}: exit {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        captures = sorted(arguments.captures.glob("*.safetensors"))
        for number, capture in enumerate(captures):
            page = folder / f"{capture.stem}.html"
            report = check(capture, page, 1)
            screenshot = arguments.artefacts / f"{capture.stem}.png" if number == 0 else None
            check_page(arguments.chromium, page, report, folder, screenshot=screenshot)
        # A replay gives the same page, of rows that conform.
        page = folder / "run.html"
        subprocess.run([arguments.seriatim, "run", captures[0], "--html", page], capture_output=True, check=True)
        data = json.loads(re.search(rb'<script type="application/json" id="data">(.*?)</script>', page.read_bytes(),
                                    re.S).group(1))
        expect(data["report"]["conforms"] is True, "our own rows do not conform")
        check_page(arguments.chromium, page, data["report"], folder, screenshot=arguments.artefacts / "run_dark.png",
                   dark=True)
        # Many rows, and strings that would like to be markup.
        dump = folder / "large.safetensors"
        large_dump(dump)
        page = folder / "large.html"
        report = check(dump, page, 1)
        expect(report["counts"]["range"]["faults"] == 1024 and report["engine"] == HOSTILE, "the large dump")
        check_page(arguments.chromium, page, report, folder, screenshot=arguments.artefacts / "large.png")
        print(f"4,096 rows: {page.stat().st_size} bytes")
    for fault in FAULTS:
        print(fault, file=sys.stderr)
    print(f"{CHECKS} checks, {len(FAULTS)} faults")
    return 1 if FAULTS else 0


if __name__ == "__main__":
    sys.exit(main())
