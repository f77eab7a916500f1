"""A dashboard through Grafana's own models of it: what they do not know, and what they change."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

plugins.register_default_plugins()

NOT_IN_THE_MODEL: Final = {
    "dropped .annotations.list[].step": "the Prometheus data source's own options of an annotation",
    "dropped .annotations.list[].textFormat": "likewise",
    "dropped .annotations.list[].titleFormat": "likewise",
    "dropped .annotations.list[].useValueForTime": "likewise",
}
"""What is lost, and why it is there all the same."""


def losses(document: dict[str, Any]) -> set[str]:
    """What a round trip drops or changes; places are without the numbers of lists."""
    model = Dashboard.from_json(document)
    back = json.loads(json.dumps(model, cls=JSONEncoder))
    return {re.sub(r"\[\d+\]", "[]", loss) for loss in _losses(document, back, "")}


def _losses(before: Any, after: Any, place: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key in after:
                yield from _losses(value, after[key], f"{place}.{key}")
            elif value not in (None, "", [], {}):
                yield f"dropped {place}.{key}"
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for i, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _losses(one, other, f"{place}[{i}]")
    elif before != after:
        yield f"changed {place}"
