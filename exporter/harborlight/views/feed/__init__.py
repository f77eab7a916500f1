"""The public feed: what the live page shows, and all that may be known outside."""
