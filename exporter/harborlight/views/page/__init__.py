"""The live page: the feed as HTML, and all the files that a reader of it is served."""
