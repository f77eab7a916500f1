"""The layer over grafanalib: panels as current Grafana saves them, and nothing that it ignores.

grafanalib 0.7.1 writes what Grafana 6 to 8 read. Its classes are used as far as their JSON still
holds; what is missing is added in the modules here, and ``current`` takes out what nothing reads
any more. Facts about the format: Grafana's dashboard schema 41 and its panels' options.
"""

from dashboards.grafana.board import (
    TAG,
    Board,
    Line,
    Section,
    annotation,
    as_json,
    link_to,
    search_box,
    uid,
    variable,
)
from dashboards.grafana.fields import (
    DASHED,
    DATASOURCE,
    DATE,
    DURATION,
    GREEN_AT_ZERO,
    NOTHING,
    PERCENTAGE_POINTS,
    PLAIN,
    SOME,
    Format,
    Json,
    Panel,
    Query,
    of_each,
    steps,
)
from dashboards.grafana.tables import Column, columns_of, table
from dashboards.grafana.visuals import (
    bar_gauge,
    heatmap,
    share_bar,
    stat,
    state_timeline,
    text,
    time_series,
)

__all__ = [
    "DASHED",
    "DATASOURCE",
    "DATE",
    "DURATION",
    "GREEN_AT_ZERO",
    "NOTHING",
    "PERCENTAGE_POINTS",
    "PLAIN",
    "SOME",
    "TAG",
    "Board",
    "Column",
    "Format",
    "Json",
    "Line",
    "Panel",
    "Query",
    "Section",
    "annotation",
    "as_json",
    "bar_gauge",
    "columns_of",
    "heatmap",
    "link_to",
    "of_each",
    "search_box",
    "share_bar",
    "stat",
    "state_timeline",
    "steps",
    "table",
    "text",
    "time_series",
    "uid",
    "variable",
]
