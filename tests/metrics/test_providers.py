"""Providers of a program's own, and programs without OpenTelemetry."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from pgwire_codec.capture import LogCapture
from pgwire_codec.capture.lag import LagMeter
from pgwire_codec.metrics import CaptureMetrics, instruments
from pgwire_codec.metrics.observed import by_name, one_of, single


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def capture(slot: str, folder: Path) -> LogCapture:
    return LogCapture("host=/nowhere", folder, slot=slot, publication="p")


def metrics_of(reader: InMemoryMetricReader) -> dict[str, Any]:
    data: Any = reader.get_metrics_data()
    if data is None:
        return {}
    [resource] = data.resource_metrics
    [scope] = resource.scope_metrics
    assert scope.scope.name == "pgwire_codec"
    assert scope.scope.version
    return {metric.name: metric for metric in scope.metrics}


def test_a_provider_of_the_program(tmp_path: Path) -> None:
    """Two captures with one provider: each has its slot as attribute, and its own context."""
    reader = InMemoryMetricReader()
    metrics = CaptureMetrics(MeterProvider([reader], shutdown_on_exit=False))
    assert metrics_of(reader) == {}
    first, second = capture("first", tmp_path), capture("second", tmp_path)
    meter = LagMeter("host=/nowhere")  # not entered
    with metrics.watch(first, meter):
        with metrics.watch(second, meter) as watch:
            found = metrics_of(reader)
            states = found[instruments.STATE.name].data.data_points
            assert {
                (point.attributes["slot"], point.attributes["state"])
                for point in states
                if point.value == 1
            } == {("first", "connecting"), ("second", "connecting")}
            assert watch.unreadiness == "connecting"
            assert first.write_times is not second.write_times is not None
        found = metrics_of(reader)
        [point] = found[instruments.MESSAGES.name].data.data_points
        assert (dict(point.attributes), point.value) == ({"slot": "first"}, 0)
        assert found[instruments.MESSAGES.name].unit == "{message}"
    assert metrics_of(reader) == {}


def test_histograms_have_buckets_of_seconds(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    metrics = CaptureMetrics(MeterProvider([reader], shutdown_on_exit=False))
    running = capture("s", tmp_path)
    with metrics.watch(running, LagMeter("host=/nowhere")):
        assert running.write_times is not None
        with running.write_times.flush(), running.write_times.sync():
            pass
    for each in (instruments.FLUSH_DURATION, instruments.SYNC_DURATION):
        [point] = metrics_of(reader)[each.name].data.data_points
        assert point.explicit_bounds == instruments.SECONDS
        assert (point.count, dict(point.attributes)) == (1, {"slot": "s"})


def test_the_global_provider(tmp_path: Path) -> None:
    """The program may set it after the metrics were made."""
    code = f"""
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from pgwire_codec.capture import LogCapture
from pgwire_codec.capture.lag import LagMeter
from pgwire_codec.metrics import CaptureMetrics
ours = CaptureMetrics()
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
capture = LogCapture("host=/nowhere", {str(tmp_path)!r}, slot="s", publication="p")
with ours.watch(capture, LagMeter("host=/nowhere")):
    [found] = reader.get_metrics_data().resource_metrics[0].scope_metrics
print(len(found.metrics) > 10, found.metrics[0].name.split(".")[0])
"""
    assert run_python(code) == "True pgwire_codec"


def test_without_the_option_nothing_is_imported() -> None:
    code = """
import sys
import pgwire_codec.capture, pgwire_codec.cli.app, pgwire_codec.log, pgwire_codec.metrics
print([name for name in sys.modules if name.startswith(("opentelemetry", "prometheus_client"))])
"""
    assert run_python(code) == "[]"


def test_without_the_extra() -> None:
    code = """
import sys
sys.modules["opentelemetry"] = sys.modules["prometheus_client"] = None
from pgwire_codec.errors import MissingExtraError
from pgwire_codec.metrics import CaptureMetrics, MirrorMetrics
from pgwire_codec.metrics.endpoint import Endpoint
for make in (CaptureMetrics, MirrorMetrics, lambda: Endpoint("127.0.0.1:0")):
    try:
        make()
    except MissingExtraError as error:
        print(error)
"""
    lines = run_python(code).splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("metrics need opentelemetry")
        assert line.endswith("hint: Run pip install 'pgwire-codec[metrics]'.")


def test_values() -> None:
    assert single(None) == {}
    assert single(3) == {(): 3}
    assert one_of(None, "ab") == {}
    assert one_of("b", "ab") == {("a",): 0, ("b",): 1}
    assert by_name({"a": 1, "b": None}) == {("a",): 1}
