"""The metrics collectors of an installed SGLang, run without the rest of it.

As a program: ``sglang_collectors.py FOLDER RANK`` logs one process's work into FOLDER (a
Prometheus multi-process directory), ``sglang_collectors.py FOLDER page`` prints the page as
SGLang's ``/metrics`` renders it. RANK is a JSON object: a scheduler's rank labels and its work, or
``"tokenizer"`` and the requests. Everything that the collectors import beside themselves
(PyTorch, server arguments) is a stand-in.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, override
from unittest.mock import MagicMock

REAL = (
    "sglang.srt.observability.metrics_collector",
    "sglang.srt.observability.scheduler_stage_metrics",
    "sglang.srt.observability.utils",
    "sglang.srt.utils.gauge_histogram",
)
PACKAGES = ("sglang", "sglang.srt", "sglang.srt.observability", "sglang.srt.utils")
MODEL = "org/model"


def sources() -> Path | None:
    """The folder of the installed SGLang, without importing it."""
    spec = importlib.util.find_spec("sglang")
    return Path(spec.origin).parent if spec and spec.origin else None


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds stand-ins for all of SGLang but the real modules."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in REAL or not fullname.startswith("sglang"):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    @override
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = MagicMock(name=spec.name) if spec.name not in PACKAGES else None
        made = types.ModuleType(spec.name)
        if module is not None:
            made.__getattr__ = lambda name: getattr(module, name)  # type: ignore[method-assign]
        made.__path__ = [str(self._root.joinpath(*spec.name.split(".")[1:]))]
        return made

    @override
    def exec_module(self, module: types.ModuleType) -> None:
        """A stand-in has nothing to execute."""


def collectors() -> Any:
    """SGLang's own module of collectors."""
    root = sources()
    assert root is not None
    sys.meta_path.insert(0, _StandIns(root))
    context = importlib.import_module("sglang.srt.runtime_context")
    options = SimpleNamespace(
        prefill_delayer_max_delay_passes=30,
        prefill_delayer_forward_passes_buckets=None,
        prefill_delayer_wait_seconds_buckets=None,
        prompt_tokens_buckets=None,
        generation_tokens_buckets=None,
    )
    for name in ("get_schedule", "get_observability"):
        setattr(context, name, lambda: options)
    utils = importlib.import_module("sglang.srt.utils")
    utils.get_bool_env_var = lambda *_: False  # type: ignore[attr-defined]
    stages = importlib.import_module("sglang.srt.utils.nvtx_utils")
    stages.NVTX_SCHEDULER_ENABLED = False  # type: ignore[attr-defined]
    return importlib.import_module("sglang.srt.observability.metrics_collector")


def log_scheduler(rank: dict[str, Any]) -> None:
    """One scheduler's work, its labels as SGLang gives them."""
    module = collectors()
    labels = {"model_name": MODEL, "engine_type": "unified", **rank["labels"]}
    collector = module.SchedulerMetricsCollector(labels=labels, server_args=MagicMock())
    collector.emit_constants(
        max_total_num_tokens=rank["capacity"],
        max_total_num_tokens_swa=None,
        weight_memory_usage_gb=1.0,
        kv_cache_memory_usage_gb=1.0,
        graph_memory_usage_gb={},
        max_running_requests_under_SLO=None,
        page_size=1,
        num_pages=rank["capacity"],
        context_len=2048,
        startup_available_gpu_memory_gb=1.0,
    )
    if not rank["logs"]:
        return
    stats = module.SchedulerStats(
        num_running_reqs=module.QueueCount(rank["running"]),
        num_queue_reqs=module.QueueCount(rank["queued"]),
        num_used_tokens=rank["used"],
        kv_used_tokens=rank["used"],
    )
    collector.log_stats(stats)
    collector.increment_realtime_tokens(
        None,
        prefill_compute_tokens=rank["prefill"],
        prefill_cache_tokens=rank["cached"],
        decode_tokens=rank["decode"],
    )
    collector.increment_retracted_reqs(rank["retracted"], 10, 20)
    collector.increment_scheduler_process_cpu_seconds(rank["cpu"])
    collector.observe_queue_time(rank["queue_time"])


def log_tokenizer(requests: list[dict[str, Any]]) -> None:
    """Requests that ended, and one that was aborted."""
    module = collectors()
    labels = {"model_name": MODEL, "engine_type": "unified"}
    collector = module.TokenizerMetricsCollector(labels=labels)
    for request in requests:
        streamed = request["streamed"]
        collector.observe_time_to_first_token(labels, request["first"], stream=streamed)
        collector.observe_inter_token_latency(labels, request["between"], request["new"])
        collector.observe_one_finished_request(
            labels,
            request["prompt"],
            request["generated"],
            request["cached"],
            request["latency"],
            has_grammar=False,
            is_streaming=streamed,
        )
    collector.observe_one_aborted_request(labels)


def page() -> bytes:
    """All processes' work, as SGLang's endpoint puts it together."""
    # Importing it reads the environment variable, which is set by then.
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415
    from prometheus_client.multiprocess import MultiProcessCollector  # noqa: PLC0415

    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)


def main(folder: str, what: str) -> None:
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
    if what == "page":
        sys.stdout.buffer.write(page())
        return
    work = json.loads(what)
    if "tokenizer" in work:
        log_tokenizer(work["tokenizer"])
    else:
        log_scheduler(work)


if __name__ == "__main__":
    main(*sys.argv[1:])
