"""The report in a real browser, in light and in dark, wide and narrow."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pgwire_codec as pgc
from pgwire_codec import log, report
from pgwire_codec.protocol.epoch import EPOCH_MICROSECONDS
from tests.support.build import T, column, insert, relation, transaction, wire
from tests.support.logs import EPOCH, SOURCE
from tests.support.pages import Page

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SCHEMES = {"dark": 0, "light": 1}  # as Blink numbers them
WIDTHS = (320, 390, 700, 1200, 1300)
SLOT = "s" * 63  # PostgreSQL takes no longer name
EVIL = "<script>document.title = 'taken'</script>"

#: Runs beside the page, which itself may run nothing. It shows the page in frames of these widths,
#: and reports what does not fit and the least contrast (WCAG 2) of text with its background.
MEASURE = """
const widths = WIDTHS, measured = [];
function channels(colour) { return colour.match(/[\\d.]+/g).map(Number); }
function luminance(rgb) {
  const [r, g, b] = rgb.slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function background(element, view) {
  for (; element; element = element.parentElement) {
    const rgb = channels(view.getComputedStyle(element).backgroundColor);
    if (rgb.length < 4 || rgb[3] > 0) return rgb;
  }
}
function measure(frame, width) {
  const page = frame.contentDocument, view = frame.contentWindow, root = page.documentElement;
  let contrast = 99, least = "";
  for (const element of page.body.querySelectorAll("*:not(svg *)")) {
    const words = [...element.childNodes].filter(node => node.nodeType == 3).map(n => n.data);
    if (!words.join("").trim()) continue;
    const two = [luminance(channels(view.getComputedStyle(element).color)),
                 luminance(background(element, view))].sort((a, b) => b - a);
    const ratio = (two[0] + 0.05) / (two[1] + 0.05);
    if (ratio < contrast) { contrast = ratio; least = words.join(""); }
  }
  const cut = [...page.querySelectorAll(".drawing, .track, h1, h2, p, dd, .x, .y")]
    .filter(each => each.getBoundingClientRect().right > width + 1 ||
                    each.getBoundingClientRect().left < -1)
    .map(each => each.className + " " + each.textContent.slice(0, 40));
  const broken = [...page.querySelectorAll(".tiles .value, .tiles .more")]
    .filter(each => each.getClientRects().length > 1 || each.scrollWidth > each.clientWidth + 1 ||
                    each.getBoundingClientRect().height >
                      1.9 * parseFloat(view.getComputedStyle(each).fontSize))
    .map(each => each.textContent);
  measured.push({width, broken, inside: root.clientWidth, scroll: root.scrollWidth, cut, contrast,
                 least,
                 title: page.title, scripts: page.scripts.length,
                 background: view.getComputedStyle(page.body).backgroundColor});
}
onload = () => {
  document.querySelectorAll("iframe").forEach((frame, i) => measure(frame, widths[i]));
  document.querySelector("output").textContent = JSON.stringify(measured);
};
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Return a function that runs a headless browser on a file and returns its output."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    profile = tmp_path_factory.mktemp("profile")

    def run(path: Path, scheme: str, *options: str) -> str:
        done = subprocess.run(
            [
                *(found, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                f"--user-data-dir={profile}",
                f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
                *options,
                path.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def lake(name: str) -> report.LakeFindings:
    """Return a lake with a table in each state, each with something in every cell."""
    tables = [
        report.LakeTable(
            table=f"public.{state} {name}",
            state=state,
            commit_lsn=1 << 63,
            commit_time=int(EPOCH.astype(int)),
            missing=None if state == "gone" else 1_234_567,
            missing_since=int(EPOCH.astype(int)),
            files=123,
            bytes=10**13,
            rows=10**9,
            deleted=10**6,
            incomplete=(f"{name} since 0/1",) if state == "incomplete" else (),
            error="an error " * 20 + "x" * 200 if state == "set aside" else None,
            hint="a hint " * 20,
        )
        for state in ("ok", "incomplete", "set aside", "resuming", "replaying", "gone")
    ]
    letters = (report.LetterCount(name, "code", 9), report.LetterCount(None, "code", 1))
    return report.LakeFindings(name, "delta", tuple(tables), letters)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a report with something in every section, and names that contain markup."""
    folder = tmp_path_factory.mktemp("report")
    name = f"{EVIL} of_a_length_that_fits_nowhere_and_has_no_place_to_break_" + "x" * 80
    versions = [T, relation(1, *T.columns, column("more"), name=name)]
    start = int(EPOCH.astype(int)) - EPOCH_MICROSECONDS
    messages: list[Any] = []
    times: list[int] = []
    for number in range(400):
        version = versions[number // 200]
        rows = [insert(1, "1", *["x" * 50] * (len(version.columns) - 1))] * (1 + number % 17)
        at = start + number**2 * 1_000_000
        messages += transaction(version, *rows, xid=number + 3, lsn=1000 + number, time=at)
        times += [at + 997 * number**2] * (len(rows) + 3)
    messages += [b"Zrubbish", pgc.Begin(9999, start, 7)]
    times += times[-1:] * 2
    sent = (np.array(times) + EPOCH_MICROSECONDS).view("datetime64[us]")
    with log.LogWriter(folder / "log", replace(SOURCE, slot=SLOT)) as writer:
        writer.new_session(snapshot=True)
        rows = [insert(1, "1", "a", None)] * 9
        first = wire(transaction(T, *rows, xid=0, lsn=50, time=start))
        writer.append(first, np.zeros(len(first), np.uint64), sent[: len(first)])
        writer.new_session()
        writer.append(wire(messages), np.zeros(len(messages), np.uint64), sent)
    path = folder / "report.html"
    findings = report.gather(log.Log(folder / "log"))
    # Larger than a test can make: a number that needs a wide tile.
    findings = replace(findings, transactions=12_345_678_901, lake=lake(name))
    path.write_text(report.render(findings), "utf-8")
    return path


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_follows_the_colour_scheme(
    scheme: str, page: Path, browser: Callable[..., str], tmp_path: Path
) -> None:
    image = pytest.importorskip("PIL.Image", reason="pixels are read with Pillow")
    shot = tmp_path / f"{scheme}.png"
    browser(page, scheme, f"--screenshot={shot}", "--window-size=1200,1600")
    with image.open(shot) as opened:
        pixels: npt.NDArray[np.uint8] = np.asarray(opened.convert("RGB"))
    assert pixels.shape == (1600, 1200, 3)
    brightness = pixels.mean(axis=2)
    for ground in (brightness[0, 0], np.median(brightness)):
        assert (ground > 230) == (scheme == "light")
        assert (ground < 40) == (scheme == "dark")
    # Text contrasts with it, and bars have the colour of inserts in the style sheet.
    assert np.ptp(brightness) > 200
    colours = re.findall(r"--insert: #(\w{6});", page.read_text("utf-8"))
    expected = bytes.fromhex(colours[scheme == "dark"])
    assert (pixels == np.frombuffer(expected, np.uint8)).all(axis=2).sum() > 2000


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_fits_and_can_be_read(
    scheme: str, page: Path, browser: Callable[..., str], tmp_path: Path
) -> None:
    source = html.escape(page.read_text("utf-8"))
    frames = [
        f'<iframe srcdoc="{source}" style="border:0;width:{width}px;height:900px"></iframe>'
        for width in WIDTHS
    ]
    script = MEASURE.replace("WIDTHS", json.dumps(WIDTHS))
    around = tmp_path / "around.html"
    around.write_text(
        '<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        f"{''.join(frames)}<output></output><script>{script}</script>",
        "utf-8",
    )
    printed = browser(around, scheme, "--dump-dom", "--window-size=1300,1000")
    found = re.search(r"<output>(.*?)</output>", printed, re.DOTALL)
    assert found is not None
    measured = json.loads(html.unescape(found[1]))
    assert [each["width"] for each in measured] == list(WIDTHS)
    for each in measured:
        assert each["inside"] == each["width"]
        assert each["scroll"] <= each["inside"], each
        assert each["cut"] == []
        assert each["broken"] == []
        assert each["contrast"] >= 4.5, each["least"]
        assert each["scripts"] == 0
        assert each["title"] == f"shop · {SLOT}: a pgwire-codec report"
    light = measured[0]["background"] == "rgb(244, 245, 248)"
    assert light == (scheme == "light")


def test_the_browser_finds_what_was_written(page: Path, browser: Callable[..., str]) -> None:
    printed = browser(page, "light", "--dump-dom")
    source = page.read_text("utf-8")
    assert re.findall("<h2>(.*?)</h2>", printed) == [
        *("Over time", "Tables", "Lake", "Largest transactions", "Lag", "Schema changes"),
        *("Errors", "Snapshot", "Open transactions", "The log"),
    ]
    assert "<script" not in printed
    assert html.escape(EVIL, quote=False) in printed
    assert EVIL in Page(source).text
    for element in ("<rect ", "<svg ", "<td", "<title>"):
        assert printed.count(element) == source.count(element) > 10
