"""Harbor servers (``harbor serve``) as a source of jobs and trials."""
