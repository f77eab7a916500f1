"""A replayed evaluation to try Harborlight on: nothing here runs an agent or a model."""

from typing import Final

END_WITH_PARENT: Final = "HARBORLIGHT_DEMO_PARENT"
"""Names, in a replay's environment, the process that it is to end with."""
