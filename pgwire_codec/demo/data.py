"""The demo shop's rows: the same for the same seed, on every server."""

from __future__ import annotations

import json
import random
import uuid
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

_FIRST = ("Ada", "Björn", "Chidi", "Dóra", "Émile", "Fatima", "Grace", "Hiroshi", "Íris", "Jürgen")
_LAST = ("Lovelace", "O'Brien", "Núñez", "Sørensen", "Zhang", "İnce", "Kowalski", "Ólafsdóttir")
_TAGS = ("new", "loyal", "b2b", "late payer", 'says "hi"', "a,b", "NULL", "naïve")
_TIERS = ("basic", "silver", "gold")
_STATES = ("open", "paid", "shipped", "returned")
_START = datetime(2024, 2, 28, 21, 30, tzinfo=timezone.utc)
_LONG_TEXT = 3_000  # bytes; beyond some 2,000 a value moves out of its row


class ShopData:
    """Rows as tuples in the order of the tables' columns.

    Parameters
    ----------
    seed : int
        Same seed, same calls: same rows.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def long_text(self) -> str:
        """Return text that is too long to stay in its row, and does not compress."""
        return self.random.randbytes(_LONG_TEXT // 2).hex()

    def customer(self, key: int) -> tuple[object, ...]:
        """Return id, name, email, tier, is_active, profile, notes, tags, birthday, created_at."""
        choose = self.random
        name = f"{choose.choice(_FIRST)} {choose.choice(_LAST)}"
        profile = {"id": key, "langs": choose.sample(["de", "en", "hi", "ja"], 2), "nick": name[:3]}
        return (
            key,
            name,
            None if choose.random() < 0.1 else f"customer{key}@example.com",
            choose.choice(_TIERS),
            choose.random() < 0.8,
            None if choose.random() < 0.1 else json.dumps(profile),
            self.long_text() if choose.random() < 0.5 else "",
            choose.sample(_TAGS, choose.randrange(4)),
            date(1950, 1, 1) + timedelta(days=choose.randrange(20_000)),
            self._moment(),
        )

    def order(self, key: int, customers: int) -> tuple[object, ...]:
        """Return id, customer_id, token, state, total, placed_at, pick_up_at, due_on, scores."""
        choose = self.random
        placed = self._moment()
        return (
            key,
            choose.randrange(1, customers + 1),
            str(uuid.UUID(int=choose.getrandbits(128), version=4)),
            choose.choice(_STATES),
            self._money(),
            placed,
            None if choose.random() < 0.3 else placed.replace(tzinfo=None),
            placed.date() + timedelta(days=14),
            [choose.choice((None, choose.randrange(-5, 6))) for _ in range(choose.randrange(4))],
        )

    def order_lines(self, order: int) -> list[tuple[object, ...]]:
        """Return order_id, line, sku, quantity, price, weight, is_gift."""
        choose = self.random
        return [
            (
                order,
                line,
                f"SKU-{choose.randrange(500):04}",
                choose.randrange(1, 20),
                self._money(),
                Decimal(choose.getrandbits(60)).scaleb(-choose.randrange(18)),
                choose.random() < 0.1,
            )
            for line in range(1, choose.randrange(2, 6))
        ]

    def price(self, sku: int) -> tuple[object, ...]:
        """Return sku, price, valid_from, remark."""
        remark = None if self.random.random() < 0.3 else f"list {sku % 7}"
        return f"SKU-{sku:04}", self._money(), self._moment(), remark

    def event(self, key: int) -> tuple[object, ...]:
        """Return id, kind, at, amount, payload."""
        kind = self.random.choice(("view", "click", "buy"))
        payload = json.dumps({"n": key, "r": round(self.random.random(), 6)})
        return key, kind, self._moment(), self.random.gauss(0, 1e3), payload

    def _moment(self) -> datetime:
        return _START + timedelta(microseconds=self.random.randrange(10**14))

    def _money(self) -> Decimal:
        return Decimal(self.random.randrange(-10_000, 10_000_000)).scaleb(-2)
