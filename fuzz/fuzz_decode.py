"""Fuzz the compiled codec: on every input it must do what the reference does.

Run by ``make fuzz``; see README.md beside this file. An input that failed is run again by

    python fuzz/fuzz_decode.py FILE
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

try:
    import atheris
except ImportError:
    atheris = None

with atheris.instrument_imports(include=["pgwire_codec"]) if atheris else contextlib.nullcontext():
    import numpy as np

    from fuzz import inputs
    from pgwire_codec import reference
    from pgwire_codec.lake.row_types import ROW_TYPES
    from pgwire_codec.types import TypeOptions, column_type
    from pgwire_codec.types.builtin import BUILTIN
    from tests.support.differential import Pair, differential, exact, outcome, same_functions
    from tests.support.implementations import implementation

COMPILED = implementation("cython").package
TYPE_OPTIONS = [
    TypeOptions(),
    TypeOptions(arrow_types=ROW_TYPES),
    TypeOptions(types="text"),
    TypeOptions(strings="view", numeric="float64"),
    TypeOptions(numeric="decimal128(20,3)", intervals="microseconds"),
    TypeOptions(numeric="decimal256(60,12)"),
]
POLICIES = ("raise", "null", "clamp")
OPTIONS = [
    {"unrepresentable": policy, "on_error": on_error, "atomic": atomic, "before": before, **types}
    for policy in POLICIES
    for on_error in ("raise", "skip")
    for atomic, before in ((True, "key"), (False, "full"))
    for types in ({}, {"arrow_types": ROW_TYPES}, {"types": "text"}, {"strings": "view"})
]
KINDS = [
    column_type(oid, -1, TypeOptions())
    for oid in (23, 25, 1700, 1082, 1184, 17, 701, 1007, 2950, 16, 1186, 20)
]


def check(data: bytes) -> None:
    """Do what an input says by both implementations, and compare."""
    action, options, parts = inputs.unpack(data)
    if action == inputs.SINGLE:
        check_single(parts, options)
    elif action == inputs.STREAM:
        check_stream(parts, options)
    else:
        check_values(parts, options)


def check_single(parts: list[bytes], options: int) -> None:
    streaming = bool(options & 1)
    for part in parts:
        for name, how in (("decode_message", {"streaming": streaming}), ("decode_frame", {})):
            ours = outcome(getattr(COMPILED, name), part, **how)
            theirs = outcome(getattr(reference, name), part, **how)
            assert ours == theirs, (name, part)
            if theirs[0] != "DecodeError":
                message = getattr(COMPILED, name)(part, **how)
                assert COMPILED.encode_message(message) == part
                assert reference.encode_message(message) == part
    wanted = list(enumerate(KINDS))[options % 3 :: 1 + options % 5]
    same_functions(
        exact(parts),
        streaming=streaming,
        columns=len(KINDS),
        wanted=wanted,
        unrepresentable=POLICIES[options % 3],
    )


def check_stream(parts: list[bytes], options: int) -> None:
    pair = Pair(**OPTIONS[options % len(OPTIONS)])
    middle = len(parts) // 2 if options & 128 else 0
    for several in (parts[:middle], parts[middle:]):
        pair.decode(several)


def check_values(parts: list[bytes], options: int) -> None:
    number, is_array = (parts[0] + b"\0\0")[:2] if parts else (0, 0)
    oid, _, _, array, _, _ = BUILTIN[number % len(BUILTIN)]
    kind = column_type(array if is_array & 1 and array else oid, -1, TYPE_OPTIONS[options % 6])
    values = parts[1:]
    state = np.array([part[:1] in (b"t", b"b") for part in values], np.uint8)
    lengths = np.array([max(len(part) - 1, 0) for part in values], np.int32)
    messages = exact([b"behind a head", *values])
    differential(
        "decode_values",
        kind,
        messages.data,
        messages.offsets[1:-1] + 1,
        lengths,
        state,
        np.array([part[:1] == b"b" for part in values], np.uint8),
        unrepresentable=POLICIES[options // 6 % 3],
    )


def mutator(data: bytes, size: int, seed: int) -> bytes:
    mutate = inputs.mutate_plainly if atheris is None else atheris.Mutate
    return inputs.mutated(data, size, random.Random(seed), mutate)


def fuzz_plainly(seconds: float, directory: Path) -> None:
    """Mutate the seeds at random, without knowing what they reach."""
    pool = list(inputs.seeds())
    executions, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        data = random.choice(pool)
        for _ in range(random.randrange(1, 5)):
            data = mutator(data, inputs.MAX_SIZE, random.getrandbits(32))
        try:
            check(data)
        except BaseException:
            (directory / "crash").write_bytes(data)
            raise
        executions += 1
    print(f"Done {executions} runs in {seconds:g} seconds, by plain mutation")


def main(arguments: list[str]) -> None:
    if arguments:
        for name in arguments:
            check(Path(name).read_bytes())
        return
    seconds = int(os.environ.get("FUZZ_SECONDS", "600"))
    directory = Path("build") / "fuzz"
    corpus = directory / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(inputs.seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    if atheris is None:
        fuzz_plainly(seconds, directory)
        return
    how: list[Any] = [
        sys.argv[0],
        f"-max_total_time={seconds}",
        f"-max_len={inputs.MAX_SIZE}",
        f"-artifact_prefix={directory}/",
        "-rss_limit_mb=4096",
        "-len_control=0",
        "-print_final_stats=1",
        corpus,
    ]
    atheris.Setup([str(each) for each in how], check, custom_mutator=mutator)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
