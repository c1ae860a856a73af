"""Write the pictures of a report in docs/images, in light and in dark, with Chromium.

The log is a day of a small shop, and the same each time. Run it after a change to the page::

    python tools/report_screenshots.py

It needs Chromium on ``PATH``, and Pillow. With a folder as its argument, it writes the page there,
and pictures of all of it as on a wide screen and on a phone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from math import cos, pi
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
from PIL import Image

import pgwire_codec as pgc
from pgwire_codec import log, report
from pgwire_codec.lake import mirroring
from pgwire_codec.protocol.epoch import EPOCH_MICROSECONDS

IMAGES: Final = Path(__file__).resolve().parent.parent / "docs" / "images"
_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
_SCHEMES: Final = {"dark": 0, "light": 1}  # as Blink numbers them

_SOURCE: Final = log.LogSource("7000000000000000001", 1, "shop", "lake", 180004)
_START: Final = int(np.datetime64("2026-10-05T00:00:00", "us").astype(np.int64))
_MINUTE: Final = 60_000_000
_DAY: Final = 24 * 60
_INT4, _TEXT, _NUMERIC, _TIMESTAMP = 23, 25, 1700, 1114
_PRICE: Final = (10 << 16) + 2 + 4  # numeric(10, 2)


def _column(name: str, oid: int = _TEXT, modifier: int = -1) -> pgc.RelationColumn:
    return pgc.RelationColumn(int(name == "id"), name, oid, modifier)


def _relation(oid: int, name: str, *columns: pgc.RelationColumn) -> pgc.Relation:
    return pgc.Relation(None, oid, "public", name, "d", (_column("id", _INT4), *columns))


_TOTAL: Final = _column("total", _NUMERIC, _PRICE)
_ORDERS: Final = _relation(1, "orders", _column("customer", _INT4), _column("status"), _TOTAL)
_LINES: Final = _relation(2, "order_lines", _column("sku"), _column("price", _NUMERIC, _PRICE))
_CUSTOMERS: Final = _relation(3, "customers", _column("name"), _column("address"))
_WIDER: Final = _relation(3, "customers", *_CUSTOMERS.columns[1:], _column("phone"))
_PRICES: Final = _relation(4, "prices", _column("price", _NUMERIC, _PRICE))
_EVENTS: Final = _relation(5, "events", _column("at", _TIMESTAMP), _column("text"))


def _row(*values: object) -> pgc.TupleData:
    kinds = bytes(b"n"[0] if value is None else b"t"[0] for value in values)
    return pgc.TupleData(
        kinds, tuple(None if value is None else str(value).encode() for value in values)
    )


def _transactions() -> Iterator[tuple[int, list[Any]]]:
    """Yield the minute and the changes of each transaction."""
    random = Random(7)
    customers, orders, lines = 0, 0, 0
    for minute in range(_DAY):
        customer_table = _CUSTOMERS if minute < 0.6 * _DAY else _WIDER
        busy = 3.2 - 2.8 * cos(2 * pi * minute / _DAY) + (6 if 780 < minute < 840 else 0)
        for _ in range(round(random.gauss(busy, busy / 4))):
            changes: list[Any] = []
            if not customers or random.random() < 0.2:
                customers += 1
                values = [customers, f"Customer {customers}", "Long Street 1, " * 4, None]
                changes += [
                    customer_table,
                    pgc.Insert(None, 3, _row(*values[: len(customer_table.columns)])),
                ]
            orders += 1
            total = f"{random.uniform(5, 200):.2f}"
            changes += [_ORDERS, pgc.Insert(None, 1, _row(orders, customers, "new", total)), _LINES]
            for _ in range(random.randint(1, 5)):
                lines += 1
                changes.append(pgc.Insert(None, 2, _row(lines, f"sku-{lines % 97}", "9.90")))
            if orders > 20:
                old = orders - random.randint(1, 20)
                new = _row(old, customers, "shipped", total)
                changes.append(pgc.Update(None, 1, None, None, new))
            if orders % 40 == 0:
                changes.append(pgc.Delete(None, 1, _row(orders - 30, None, None, None), None))
            yield minute, changes
        if minute in (120, 1080):
            number = range(1, 1500)
            price = f"{random.uniform(1, 90):.2f}"
            new_prices = [pgc.Insert(None, 4, _row(sku, price)) for sku in number]
            if minute > 120:
                new_prices = [pgc.Update(None, 4, None, None, _row(sku, price)) for sku in number]
            yield minute, [_PRICES, *new_prices]
        at = f"2026-10-05 {minute // 60:02}:{minute % 60:02}:00"
        # The last one is a time that the table's column cannot represent.
        event = _row(minute, "infinity" if minute == 900 else at, "heartbeat of the shop's tills")
        yield minute, [_EVENTS, pgc.Insert(None, 5, event)]


def _write(folder: Path, transactions: list[tuple[int, list[Any]]], first: int) -> None:
    """Append transactions to a log, each a part of a minute after the one before."""
    random = Random(first)
    messages: list[bytes] = []
    times: list[int] = []
    for number, (minute, changes) in enumerate(transactions, first):
        commit = _START + minute * _MINUTE + number % 50 * 1_000_000
        time, lsn = commit - EPOCH_MICROSECONDS, 0x1_6B37_0000 + 4096 * number
        slow = 400 if 780 < minute < 840 else 1
        lag = round(slow * random.lognormvariate(9, 1))
        inside = [pgc.Begin(lsn, time, 700 + number), *changes, pgc.Commit(0, lsn, lsn + 48, time)]
        messages += map(pgc.encode_message, inside)
        times += [commit + lag] * len(inside)
    with log.LogWriter(folder, _SOURCE) as writer:
        sent = np.array(times).view("datetime64[us]")
        writer.append(messages, np.zeros(len(messages), np.uint64), sent)


def page(folder: Path) -> str:
    """Make a log and a mirror in a folder; return the report."""
    transactions = list(_transactions())
    stop = len(transactions) - 25  # before which the mirror ends
    target = f"delta:{folder / 'lake'}"
    _write(folder / "shop.log", transactions[:stop], 0)
    mirroring.mirror(folder / "shop.log", target, once=True).run()
    _write(folder / "shop.log", transactions[stop:], stop)
    return report.render(report.gather(log.Log(folder / "shop.log"), lake=target))


def screenshot(path: Path, scheme: str, width: int, height: int, image: Path) -> None:
    """Write a picture of a page, of 256 colours."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"none of {', '.join(_BROWSERS)} is on PATH")
    with tempfile.TemporaryDirectory() as profile:
        # A window is at least 500 wide, and a frame is not.
        around = Path(profile) / "around.html"
        around.write_text(
            '<!doctype html><meta name="color-scheme" content="light dark">'
            f'<body style="margin:0"><iframe src="{path.as_uri()}" '
            f'style="border:0;width:{width}px;height:{height}px;display:block"></iframe>',
            "utf-8",
        )
        shot = Path(profile) / "shot.png"
        subprocess.run(
            [
                *(browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                f"--user-data-dir={profile}/data",
                f"--blink-settings=preferredColorScheme={_SCHEMES[scheme]}",
                *(f"--screenshot={shot}", f"--window-size={max(width, 500)},{height}"),
                around.as_uri(),
            ],
            check=True,
            capture_output=True,
        )
        with Image.open(shot) as opened:
            cut = opened.convert("RGB").crop((0, 0, width, height))
            cut.quantize(256, kmeans=8, dither=Image.Dither.NONE).save(image, optimize=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(made)
        path = folder / "report.html"
        path.write_text(page(folder), "utf-8")
        for scheme in _SCHEMES:
            if len(sys.argv) > 1:
                for width, height in ((1200, 4400), (390, 5600)):
                    screenshot(path, scheme, width, height, folder / f"{scheme}-{width}.png")
            else:
                IMAGES.mkdir(exist_ok=True)
                screenshot(path, scheme, 1168, 1466, IMAGES / f"report-{scheme}.png")


if __name__ == "__main__":
    main()
