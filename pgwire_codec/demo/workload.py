"""Workload of the demo shop: every kind of pgoutput message, in a fixed order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.capture.connection.connect import connect, load_psycopg2
from pgwire_codec.demo.data import ShopData
from pgwire_codec.demo.shop import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_ROWS_A_STATEMENT: Final = 500


@dataclass(frozen=True, slots=True)
class Step:
    """A completed part of the workload: its name, and the number of changes it committed."""

    name: str
    changes: int


#: Names of all steps, in order; the last two are omitted if transactions cannot be prepared.
STEPS: Final = (
    "customers sign up",
    "orders come in",
    "customers change",
    "keys change",
    "orders are cancelled",
    "a savepoint is rolled back",
    "prices change",
    "tables get new columns",
    "carts are emptied",
    "a large transaction",
    "large transactions at once",
    "a prepared transaction commits",
    "a prepared transaction rolls back",
)


def run(
    dsn: str,
    *,
    seed: int = 1,
    scale: int = 1,
    two_phase: bool | None = None,
    report: Callable[[Step], None] | None = None,
) -> list[Step]:
    """Run the workload on the tables of :func:`pgwire_codec.demo.shop.create`.

    Parameters
    ----------
    dsn : str
        Of the database.
    seed : int
        The same seed and scale make the same rows on every server.
    scale : int
        1 makes some 10,000 changes; their number grows with it.
    two_phase : bool, optional
        Prepare transactions; None: if the server's ``max_prepared_transactions`` allows it.
    report : callable, optional
        Called after each step, as for a progress bar over :data:`STEPS`.

    Returns
    -------
    list of Step
    """
    done: list[Step] = []
    connections = [connect(dsn), connect(dsn)]
    try:
        workload = _Workload(connections, seed, scale)
        if two_phase is None:
            two_phase = workload.can_prepare()
        for step in workload.steps(two_phase):
            done.append(step)
            if report is not None:
                report(step)
    finally:
        for connection in connections:
            connection.close()
    return done


class _Workload:
    def __init__(self, connections: list[Any], seed: int, scale: int) -> None:
        self.first, self.second = (connection.cursor() for connection in connections)
        for cursor in (self.first, self.second):
            cursor.execute(f"SET search_path = {SCHEMA}")
        self.data = ShopData(seed)
        self.customers = 200 * scale
        self.orders = 400 * scale
        self.events = 2_000 * scale
        self.changes = 0

    def can_prepare(self) -> bool:
        self.first.execute("SELECT current_setting('max_prepared_transactions')::int > 0")
        answer: bool = self.first.fetchone()[0]
        return answer

    def steps(self, two_phase: bool) -> Iterator[Step]:
        parts: list[Callable[[], None]] = [
            self.sign_up,
            self.order,
            self.change_customers,
            self.change_keys,
            self.cancel,
            self.roll_back_savepoint,
            self.change_prices,
            self.add_columns,
            self.empty_carts,
            self.write_much,
            self.write_much_at_once,
        ]
        if two_phase:
            parts += [self.prepare_and_commit, self.prepare_and_roll_back]
        for name, part in zip(STEPS, parts, strict=False):
            self.changes = 0
            part()
            yield Step(name, self.changes)

    def execute(self, cursor: Any, statement: str, *arguments: object) -> None:
        cursor.execute(statement, arguments)
        self.changes += max(cursor.rowcount, 0)

    def insert(self, cursor: Any, table: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Insert rows, whose values are in the order of the table's first columns."""
        extras = load_psycopg2().extras
        rows = list(rows)
        extras.execute_values(
            cursor, f"INSERT INTO {table} VALUES %s", rows, page_size=_ROWS_A_STATEMENT
        )
        self.changes += len(rows)

    def sign_up(self) -> None:
        keys = range(1, self.customers + 1)
        self.insert(self.first, "customers", map(self.data.customer, keys))

    def order(self) -> None:
        for start in range(1, self.orders + 1, 50):
            keys = range(start, min(start + 50, self.orders + 1))
            self.first.execute("BEGIN")
            orders = [self.data.order(key, self.customers) for key in keys]
            self.insert(self.first, "orders", orders)
            self.insert(
                self.first,
                "order_lines",
                (row for key in keys for row in self.data.order_lines(key)),
            )
            self.first.execute("COMMIT")

    def change_customers(self) -> None:
        # The long notes do not change, and are not sent.
        self.execute(self.first, "UPDATE customers SET tier = 'gold' WHERE id %% 3 = 0")
        self.execute(
            self.first,
            "UPDATE customers SET profile = profile || '{\"vip\": true}', email = NULL"
            " WHERE id %% 7 = 1",
        )
        for key in range(5, self.customers, 20):
            self.execute(
                self.first,
                "UPDATE customers SET notes = %s, tags = tags || %s::text WHERE id = %s",
                self.data.long_text(),
                "wrote",
                key,
            )
        self.execute(
            self.first, "UPDATE orders SET state = 'paid', scores = '{}' WHERE id %% 4 = 2"
        )

    def change_keys(self) -> None:
        self.execute(
            self.first, "UPDATE customers SET id = id + 1000000 WHERE id BETWEEN 10 AND 19"
        )
        self.execute(self.first, "UPDATE order_lines SET line = line + 100 WHERE order_id = 7")
        # There and back within one transaction.
        self.first.execute("BEGIN")
        self.execute(self.first, "UPDATE orders SET id = -id WHERE id = 11")
        self.execute(self.first, "UPDATE orders SET id = -id WHERE id = -11")
        self.first.execute("COMMIT")

    def cancel(self) -> None:
        self.first.execute("BEGIN")
        self.execute(self.first, "DELETE FROM order_lines WHERE order_id %% 10 = 3")
        self.execute(self.first, "DELETE FROM orders WHERE id %% 10 = 3")
        self.first.execute("COMMIT")
        # The key comes back with another row.
        self.insert(self.first, "orders", [self.data.order(3, self.customers)])

    def roll_back_savepoint(self) -> None:
        cursor = self.first
        cursor.execute("BEGIN")
        self.execute(cursor, "UPDATE customers SET tier = 'silver' WHERE id %% 5 = 0")
        cursor.execute("SAVEPOINT before_mistake")
        cursor.execute("DELETE FROM order_lines")
        cursor.execute("UPDATE customers SET name = 'lost', email = NULL")
        cursor.execute("ROLLBACK TO SAVEPOINT before_mistake")
        self.execute(cursor, "UPDATE orders SET state = 'shipped' WHERE id %% 6 = 1")
        cursor.execute("COMMIT")

    def change_prices(self) -> None:
        self.insert(self.first, "prices", map(self.data.price, range(100)))
        self.execute(self.first, "UPDATE prices SET price = price * 1.1 WHERE sku < 'SKU-0030'")
        self.execute(self.first, "UPDATE prices SET sku = 'OLD' || sku WHERE sku > 'SKU-0090'")
        self.execute(self.first, "DELETE FROM prices WHERE remark IS NULL")

    def add_columns(self) -> None:
        cursor = self.first
        cursor.execute("ALTER TABLE orders ADD COLUMN channel text")
        orders = range(self.orders + 1, self.orders + 51)
        self.insert(
            cursor, "orders", [(*self.data.order(key, self.customers), "web") for key in orders]
        )
        # Rows before and after ALTER TABLE within one transaction.
        cursor.execute("BEGIN")
        customers = range(self.customers + 1, self.customers + 21)
        self.insert(cursor, "customers", map(self.data.customer, customers))
        cursor.execute("ALTER TABLE customers ADD COLUMN score double precision")
        self.execute(cursor, "UPDATE customers SET score = id / 7.0 WHERE id %% 2 = 0")
        cursor.execute("COMMIT")

    def empty_carts(self) -> None:
        self.insert(self.first, "carts", [(key, f"SKU-{key:04}") for key in range(1, 41)])
        self.first.execute("BEGIN")
        self.execute(self.first, "TRUNCATE carts")
        self.insert(self.first, "carts", [(key, "again") for key in range(1, 6)])
        self.first.execute("COMMIT")

    def write_much(self) -> None:
        self.first.execute("BEGIN")
        self.insert(self.first, "events", map(self.data.event, range(self.events)))
        self.first.execute("SAVEPOINT half")
        self.first.execute("UPDATE events SET kind = 'never', amount = 0")
        self.first.execute("ROLLBACK TO SAVEPOINT half")
        self.execute(self.first, "UPDATE events SET amount = -amount WHERE id %% 5 = 0")
        self.first.execute("COMMIT")

    def write_much_at_once(self) -> None:
        cursors = (self.first, self.second)
        for cursor in cursors:
            cursor.execute("BEGIN")
        for part in range(4):
            for number, cursor in enumerate(cursors, start=1):
                start = self.events * (4 * number + part)
                keys = range(start, start + self.events // 4)
                self.insert(cursor, "events", map(self.data.event, keys))
        # The one that began last commits first; a third one, larger than these, never commits.
        self.second.execute("COMMIT")
        self.second.execute("BEGIN")
        self.second.execute("UPDATE events SET kind = 'never'")
        self.first.execute("COMMIT")
        self.second.execute("ROLLBACK")

    def prepare_and_commit(self) -> None:
        gid = f"{SCHEMA}_commit"
        self.first.execute("BEGIN")
        start = 100 * self.events
        keys = range(start, start + self.events // 2)
        self.insert(self.first, "events", map(self.data.event, keys))
        self.first.execute("PREPARE TRANSACTION %s", (gid,))
        # Committed by another session, after another transaction.
        self.execute(self.second, "UPDATE orders SET state = 'returned' WHERE id = 2")
        self.second.execute("COMMIT PREPARED %s", (gid,))

    def prepare_and_roll_back(self) -> None:
        gid = f"{SCHEMA}_rollback"
        self.first.execute("BEGIN")
        self.first.execute("UPDATE customers SET name = 'never'")
        self.first.execute("PREPARE TRANSACTION %s", (gid,))
        self.second.execute("ROLLBACK PREPARED %s", (gid,))
