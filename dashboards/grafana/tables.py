"""Tables: a row for each set of labels, a column for each query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grafanalib.core as g

from dashboards.grafana.fields import (
    NOTHING,
    PLAIN,
    Json,
    Panel,
    Query,
    fixed,
    mapping,
    of_panel,
    override,
    refs_in_order,
    steps,
)
from dashboards.texts import Choice, Text


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column: the value of a query, or the label ``shows``, of a query or of all rows.

    Without ``expr`` it is a label that the other columns' queries have.
    """

    title: Text
    expr: str = ""
    shows: str = ""
    unit: str = PLAIN
    width: int | None = None
    decimals: int | None = None
    mappings: Sequence[Choice] = ()
    thresholds: Sequence[Any] = ()
    cell: str = "auto"
    colour: str = ""
    minimum: float | None = None
    maximum: float | None = None
    links: Sequence[Json] = ()
    no_value: Text = NOTHING


_CELLS: Final[Mapping[str, Json]] = {
    "auto": {"type": "auto"},
    "text": {"type": "color-text"},
    "background": {"type": "color-background", "mode": "basic"},
    "bar": {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"},
}


def columns_of(
    choices: Iterable[Choice],
    query: Callable[[str], str],
    column: Callable[[Text, str], Column] = Column,
) -> list[Column]:
    """A column for each choice, its query made of the choice's value."""
    return [column(choice.text, query(str(choice.value))) for choice in choices]


def table(
    title: Text,
    columns: Sequence[Column],
    *,
    about: Text,
    no_value: Text,
    sort: Text | None = None,
    descending: bool = False,
    filters: bool = False,
    hide: Sequence[str] = (),
) -> Panel:
    """A row for each set of labels, a column for each query; the queries' labels are joined.

    ``hide``: labels of the queries that are not shown.
    """
    asked = [column for column in columns if column.expr]
    refs = iter(refs_in_order())
    order: dict[str, int] = {}
    names: dict[str, str] = {}
    hidden = dict.fromkeys(("Time", *hide), True)
    for position, column in enumerate(columns):
        source = column.shows
        if column.expr:
            # Grafana names a value after its query only where there are several.
            value = f"Value #{next(refs)}" if len(asked) > 1 else "Value"
            source = column.shows or value
            if column.shows:
                hidden[value] = True
        order[source] = position
        names[source] = column.title
    return g.Table(
        **of_panel(
            title, about, [Query(column.expr) for column in asked], instant=True, form="table"
        ),
        thresholds=steps("text"),
        sortBy=[g.TableSortByField(sort, descending)] if sort else [],
        transformations=[
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": hidden,
                    "indexByName": order,
                    "renameByName": names,
                },
            },
        ],
        overrides=[
            override("byName", column.title, _column_options(column, filters=filters))
            for column in columns
        ],
        extraJson={
            "fieldConfig": {
                "defaults": {
                    "noValue": no_value,
                    "color": {"mode": "thresholds"},
                    "custom": {"cellOptions": {"type": "auto"}, "minWidth": 60},
                }
            },
            "options": {"cellHeight": "sm"},
        },
    )


def _column_options(column: Column, *, filters: bool) -> Json:
    options: Json = {"noValue": column.no_value}
    if filters and (column.mappings or not column.expr):
        # Of names and states; a list of all numbers to choose from helps nobody.
        options["custom.filterable"] = True
    if column.expr and not column.shows:
        options["unit"] = column.unit
    if column.decimals is not None:
        options["decimals"] = column.decimals
    if column.width:
        options["custom.width"] = column.width
    if column.cell != "auto":
        options["custom.cellOptions"] = _CELLS[column.cell]
    if column.thresholds:
        options["thresholds"] = {"mode": "absolute", "steps": column.thresholds}
    if column.mappings or (column.expr and not column.shows):
        options.update(mapping(column.mappings, column.no_value))
    if column.colour:
        options["color"] = fixed(column.colour)
    if column.minimum is not None:
        options["min"] = column.minimum
    if column.maximum is not None:
        options["max"] = column.maximum
    if column.links:
        options["links"] = list(column.links)
    return options
