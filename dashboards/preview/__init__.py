"""Draws the dashboards from a replayed run as Grafana would; for development only."""
