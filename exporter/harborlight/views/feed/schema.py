"""The feed's published JSON Schema."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from harborlight.views.feed.model import VERSION, IndexFeed, RunFeed


def schema() -> dict[str, Any]:
    """The schema of both documents, which ``feed`` tells apart."""
    made = TypeAdapter(IndexFeed | RunFeed).json_schema(mode="serialization")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Harborlight's public feed, version {VERSION}",
        **made,
    }
