"""SGLang servers: what they say over HTTP, translated into readings."""
