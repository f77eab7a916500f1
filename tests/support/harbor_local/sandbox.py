"""A Harbor environment whose container is a directory and whose exec is bubblewrap.

A task can make its environment misbehave with a file in its ``environment/``
directory: ``START_FAIL`` (the message of the failure) or ``START_HANG`` (how many
seconds the start takes). Both are over where Harbor's own environment has ``MENDED``.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any, override

from harbor.environments.base import BaseEnvironment, ExecResult, SandboxBuildFailedError
from harbor.environments.capabilities import (
    EnvironmentCapabilities,
    EnvironmentResourceCapabilities,
)

_WRITABLE = (
    "app",
    "home",
    "installed-agent",
    "logs/agent",
    "logs/artifacts",
    "logs/user-agent",
    "logs/verifier",
    "root",
    "runtime",
    "solution",
    "tests",
    "tmp",
)
_CONTROL_FILES = ("Dockerfile", "START_FAIL", "START_HANG")
_SYSTEM = (
    *("--ro-bind", "/usr", "/usr"),
    *("--ro-bind", "/etc", "/etc"),
    *("--symlink", "usr/bin", "/bin"),
    *("--symlink", "usr/sbin", "/sbin"),
    *("--symlink", "usr/lib", "/lib"),
    *("--symlink", "usr/lib64", "/lib64"),
)
_ENV = {
    "HOME": "/root",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}


class SandboxEnvironment(BaseEnvironment):
    """One temporary directory tree, seen as ``/`` by the commands of one trial."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._root: Path | None = None

    @staticmethod
    @override
    def type() -> str:
        return "sandbox"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(mounted=True)

    @classmethod
    @override
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities()

    @override
    def _validate_definition(self) -> None:
        """Nothing is built, so nothing has to be defined."""

    @override
    async def start(self, force_build: bool) -> None:
        mended = "MENDED" in os.environ
        hang = self.environment_dir / "START_HANG"
        if hang.exists() and not mended:
            await asyncio.sleep(float(hang.read_text()))
        fail = self.environment_dir / "START_FAIL"
        if fail.exists() and not mended:
            raise SandboxBuildFailedError(fail.read_text().strip())
        root = Path(tempfile.mkdtemp(prefix=f"sandbox-{self.session_id[:40]}-"))
        for name in _WRITABLE:
            (root / name).mkdir(parents=True)
            (root / name).chmod(0o777)
        if self.environment_dir.is_dir():
            if self._enable_environment_dir_upload:
                self._copy_inputs(root / "app")
            else:  # a separate verifier: its directory holds the tests
                shutil.copytree(self.environment_dir, root / "tests", dirs_exist_ok=True)
        self._root = root

    def _copy_inputs(self, target: Path) -> None:
        for path in self.environment_dir.iterdir():
            if path.name in _CONTROL_FILES:
                continue
            if path.is_dir():
                shutil.copytree(path, target / path.name)
            else:
                shutil.copy2(path, target / path.name)

    @override
    async def stop(self, delete: bool) -> None:
        if self._root is not None and delete:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None

    @property
    def _started(self) -> Path:
        if self._root is None:
            raise RuntimeError("the sandbox is not running")
        return self._root

    def _binds(self) -> list[tuple[str, str]]:
        """Host directory and sandbox directory of every mount, outermost first."""
        mounts = [m for m in self._host_mounts if m["type"] == "bind"]
        return sorted(((m["source"], m["target"]) for m in mounts), key=lambda pair: len(pair[1]))

    def _on_host(self, path: str) -> Path:
        """Where a sandbox path lies on the host."""
        for source, target in reversed(self._binds()):
            if path == target or path.startswith(target + "/"):
                return Path(source) / path[len(target) :].lstrip("/")
        return self._started / path.lstrip("/")

    def _argv(self, command: str, cwd: str | None, env: dict[str, str]) -> list[str]:
        argv = ["bwrap", "--die-with-parent", "--unshare-pid"]
        argv += ["--proc", "/proc", "--dev", "/dev", *_SYSTEM]
        for name in sorted(p.name for p in self._started.iterdir()):
            argv += ["--bind", str(self._started / name), f"/{name}"]
        for source, target in self._binds():
            argv += ["--bind", source, target]
        argv += ["--chdir", cwd or "/app", "--clearenv"]
        for key, value in env.items():
            argv += ["--setenv", key, value]
        return [*argv, "--", "bash", "-c", command]

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        merged = {**_ENV, **(self._merge_env(env) or {})}
        process = await asyncio.create_subprocess_exec(
            *self._argv(command, cwd, merged),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), timeout_sec)
        except BaseException:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)  # its own session: started just above
            raise
        return ExecResult(
            stdout=out.decode(errors="replace"),
            stderr=err.decode(errors="replace"),
            return_code=process.returncode or 0,
        )

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        target = self._on_host(str(target_path))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source_path, target)

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self._on_host(str(target_dir)), dirs_exist_ok=True)

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(self._on_host(str(source_path)), target_path)

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self._on_host(str(source_dir)), target_dir, dirs_exist_ok=True)
