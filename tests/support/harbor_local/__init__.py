"""Real Harbor jobs on one machine, without containers.

``sandbox`` is a Harbor environment that runs every command in bubblewrap,
``scripted`` a Harbor agent that does what a script tells it, ``tasks`` writes
small task directories. Harbor imports the first two by path, so ``tests/`` must
be on its ``PYTHONPATH``.
"""

SANDBOX = "support.harbor_local.sandbox:SandboxEnvironment"
SCRIPTED = "support.harbor_local.scripted:ScriptedAgent"
