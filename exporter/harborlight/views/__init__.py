"""Views: what a snapshot looks like to Prometheus and on a terminal."""
