"""Stands in for vLLM, which SGLang imports on processors without AMX and never calls here."""
