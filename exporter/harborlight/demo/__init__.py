"""A replayed evaluation to try Harborlight on: nothing here runs an agent or a model."""

from typing import Final

END_WITH_PARENT: Final = "HARBORLIGHT_DEMO_PARENT"
"""Names, in a replay's environment, the process that it is to end with."""

DEMO_REFERENCE: Final = "terminal-bench-4.0-glm-5.3"
"""The reference that ships whose trials are replayed."""
