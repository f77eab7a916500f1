"""A replayed evaluation to try Harborlight on: nothing here runs an agent or a model."""
