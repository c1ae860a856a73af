"""Commits of a Delta table by other programs than a stream: restores, and other changes of rows.

A restore takes rows back, and leaves the versions of the actions ``txn`` as they are. So each
commit of a stream records its own number, too. Later commits are of others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pgwire_codec.lake.folder import Folder
from pgwire_codec.lake.tables.delta_log import (
    Action,
    DeltaState,
    oldest_state,
    read_commit,
    refresh_once,
    vector_id,
)

_RESTORE: Final = "RESTORE"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of a table's rows."""

    #: Versions of the actions ``txn`` when a restored version was written; None without a restore.
    restored: Mapping[str, int] | None = None
    others: tuple[str, ...] = ()  # changes of rows since then


def version_id(app_id: str) -> str:
    """Return the ``appId`` under which a stream records the number of its last commit."""
    return f"{app_id}/version"


def provenance_of(
    folder: Folder, app_id: str, transactions: Mapping[str, int], version: int
) -> Provenance:
    """Return the origin of the rows of a version, in which the actions ``txn`` have some values."""
    own = transactions.get(version_id(app_id))
    found = Provenance()
    for number in range(version + 1 if own is None else own + 1, version + 1):
        commit = read_commit(folder, number)
        if commit is None:
            other = f"version {number}, whose commit was removed"
            found = replace(found, others=(*found.others, other))
        else:
            found = follow(found, folder, app_id, number, commit)
    return found


def follow(
    before: Provenance, folder: Folder, app_id: str, number: int, actions: Sequence[Action]
) -> Provenance:
    """Return the origin of the rows after a commit."""
    if any(_is_of(action, app_id, number) for action in actions):
        return Provenance()
    info: dict[str, Any] = next(
        (each["commitInfo"] for each in actions if "commitInfo" in each), {}
    )
    operation = info.get("operation", "an unknown operation")
    if operation == _RESTORE:
        restored = _restored(folder, number)
        if restored is not None:
            found = provenance_of(folder, app_id, restored.transactions, restored.version)
            if found.restored is None:
                found = replace(found, restored=restored.transactions)
            return found
        operation += " of a version whose commits were removed"
    if any(_changes_rows(action) for action in actions):
        return replace(before, others=(*before.others, f"{operation} in version {number}"))
    return before


def _is_of(action: Action, app_id: str, number: int) -> bool:
    transaction = action.get("txn", {})
    return (transaction.get("appId"), transaction.get("version")) == (version_id(app_id), number)


def _changes_rows(action: Action) -> bool:
    content = action.get("add") or action.get("remove")
    return content is not None and content.get("dataChange") is not False


def _restored(folder: Folder, number: int) -> DeltaState | None:
    """Return the newest version that has the files of a later one; None if the log lacks it."""
    state = oldest_state(folder)
    if state is None:
        return None
    versions: dict[int, DeltaState] = {}  # by the files
    while state.version < number:
        versions[_files(state)] = DeltaState(state.version, transactions=dict(state.transactions))
        if refresh_once(folder, state) is None:
            return None
    return versions.get(_files(state))


def _files(state: DeltaState) -> int:
    """Return a number for the files of a version and their vectors."""
    return hash(frozenset((path, vector_id(file)) for path, file in state.files.items()))
