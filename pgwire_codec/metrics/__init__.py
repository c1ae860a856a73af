"""OpenTelemetry metrics of captures and mirrors, and an endpoint for Prometheus.

>>> from pgwire_codec import capture, metrics
>>> running = capture.LogCapture("dbname=shop", "shop.log", slot="s", publication="p")
>>> with metrics.CaptureMetrics().watch(running):
...     running.run()

Needs the extra ``metrics``: ``pip install 'pgwire-codec[metrics]'``. Nothing else in the package
imports OpenTelemetry.
"""

from pgwire_codec.metrics.capture_metrics import CaptureMetrics, CaptureWatch
from pgwire_codec.metrics.mirror_metrics import MirrorMetrics, MirrorWatch

__all__ = [
    "CaptureMetrics",
    "CaptureWatch",
    "MirrorMetrics",
    "MirrorWatch",
]


def __dir__() -> list[str]:
    return __all__
