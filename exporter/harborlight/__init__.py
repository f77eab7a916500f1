"""Harborlight: watch long agent evaluations honestly while they run."""

__version__ = "0.1.0"
