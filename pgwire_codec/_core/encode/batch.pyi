from collections.abc import Mapping

import nanoarrow
import numpy.typing as npt

from pgwire_codec.protocol.messages import Relation
from pgwire_codec.types import TypeRegistry

def encode_batch(
    relation: Relation,
    columns: object,
    *,
    op: str = "I",
    old: object = None,
    unchanged: Mapping[str, npt.ArrayLike] | None = None,
    xid: int | None = None,
    binary: bool = False,
    registry: TypeRegistry | None = None,
) -> nanoarrow.Array: ...
