"""The panels, by what they are about; the dashboards put them together."""
