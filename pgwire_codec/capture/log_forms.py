"""Check that a log may continue with values in another form, text or binary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgwire_codec.errors import CaptureError
from pgwire_codec.types import TypeOptions, column_type, forms_agree

if TYPE_CHECKING:
    import os

    from pgwire_codec.log import LogSource, LogWriter


def check_form(log: str | os.PathLike[str], writer: LogWriter, source: LogSource) -> None:
    """Raise ``CaptureError`` if values of the log would have two meanings.

    A value is decoded by its own form. That suffices for each type whose forms are known: not for
    composite types and most types of extensions, nor for money and the types of OIDs.
    """
    before, now = (_is_binary(each) for each in (writer.recorded_source, source))
    if before == now:
        return
    from pgwire_codec.log import Log

    opened = Log(log)
    found = []
    for _, version in opened.relations_at().relations.values():
        for column in version.relation.columns:
            kind = column_type(
                column.type_oid,
                column.type_modifier,
                TypeOptions(),
                user_types={each.oid: (each.namespace, each.name) for each in version.types},
                registry=opened.registry,
            )
            if not forms_agree(kind):
                found.append(f"{version.qualified_name}.{column.name} ({kind.pg.name})")
    if found:
        raise CaptureError(
            f"the log {log} has values in {'binary' if before else 'text'} form, and those in the "
            f"other form would differ from them: {', '.join(found)}",
            hint=f"Capture {'with' if before else 'without'} --binary (`binary={before}`), as "
            "before. Or begin a new log, with a snapshot.",
        )


def _is_binary(source: LogSource) -> bool:
    return source.plugin_options.get("binary") == "true"
