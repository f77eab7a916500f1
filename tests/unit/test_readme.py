"""README.md says what is so: its table, flags, metrics, configuration and PromQL."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from harborlight.cli import _parser
from harborlight.config import (
    HarborServerConfig,
    HeadlineConfig,
    PoolConfig,
    ReferenceConfig,
    ReplicaConfig,
    TlsConfig,
    load_config,
)
from harborlight.dashboard_files import LANGUAGES
from harborlight.grafana import DEFAULT_FOLDER
from harborlight.statistics.comparability import Check
from harborlight.statistics.comparison import Scope
from harborlight.statistics.correctness import IntervalKind
from harborlight.views.catalogue import CATALOGUE, Kind
from support import documents
from support.readme import README, with_current_table

TEXT = README.read_text("utf-8")
NOT_OURS = {"--update-golden", "--jobs-dir", "--plugin", "--enable-metrics", "--api-key"}
"""Flags of pytest, of Harbor and of SGLang."""


def blocks(language: str) -> list[str]:
    return documents.blocks(TEXT, language)


def test_table_is_current() -> None:
    assert with_current_table(TEXT) == TEXT, "run `make docs`"


def test_without_markers() -> None:
    with pytest.raises(ValueError, match="metrics: begin"):
        with_current_table("no table here")


def test_flags() -> None:
    """Every flag of the command line is in the README, and no other."""
    assert documents.mentioned_flags(TEXT) - NOT_OURS == documents.known_flags()


def test_commands_parse() -> None:
    """Every command line in a block is one that Harborlight takes."""
    lines = documents.command_lines(TEXT)
    ours = [arguments for program, *arguments in lines if program == "harborlight"]
    assert (len(ours), len(lines)) == (11, 13)
    assert {program for program, *_ in lines} == {"harborlight", "harbor"}
    for arguments in ours:
        _parser().parse_args(arguments)


def test_metrics_exist() -> None:
    """Every metric that is named is in the catalogue."""
    known = set()
    for metric in CATALOGUE.values():
        known.add(metric.full_name)
        if metric.kind is Kind.HISTOGRAM:
            known |= {f"{metric.full_name}{part}" for part in ("_bucket", "_count", "_sum")}
    assert set(re.findall(r"\bharborlight_\w+", TEXT)) <= known


def configuration() -> str:
    (block,) = (block for block in blocks("yaml") if "\nruns:" in block)
    return block


def test_configuration_loads(tmp_path: Path) -> None:
    """The example is a good file, and sets every key."""
    file = tmp_path / "harborlight.yml"
    file.write_text(configuration(), "utf-8")
    config = load_config(file)
    (run,) = config.runs
    assert (run.name, run.attempts, run.jobs[2].supersedes) == ("tb4-model-x", 5, True)
    assert run.task_names == ("build-kernel", "fix-parser", "gpu-task")
    used = set(yaml.safe_load(configuration())) | {
        f"runs[].{key}" for key in yaml.safe_load(configuration())["runs"][0]
    }
    fields = set(type(config).model_fields) | {f"runs[].{k}" for k in type(run).model_fields}
    assert fields == used


def test_keys_are_listed(tmp_path: Path) -> None:
    """The table of keys has the configuration's keys, and no other."""
    file = tmp_path / "harborlight.yml"
    file.write_text(configuration(), "utf-8")
    config = load_config(file)
    listed = keys_listed("| key | value | default |")
    (run,) = config.runs
    expected = set(type(config).model_fields) - {"live_page"}
    expected |= {f"live_page.{key}" for key in type(config.live_page).model_fields}
    expected |= {f"runs[].{key}" for key in set(type(run).model_fields) - {"reward", "page"}}
    expected |= {f"runs[].reward.{key}" for key in type(run.reward).model_fields}
    expected |= {f"runs[].page.{key}" for key in type(run.page).model_fields}
    assert listed == expected


def test_keys_of_pools_are_listed() -> None:
    """So has the table of the keys of a pool."""
    expected = {f"pools[].{key}" for key in PoolConfig.model_fields if key != "tls"}
    expected |= {f"pools[].tls.{key}" for key in TlsConfig.model_fields}
    expected |= {f"pools[].replicas[].{key}" for key in ReplicaConfig.model_fields}
    assert keys_listed("| key of a pool | value | default |") == expected


def test_keys_of_harbor_servers_are_listed() -> None:
    """So has the table of the keys of a Harbor server."""
    expected = {f"harbor_servers[].{k}" for k in HarborServerConfig.model_fields if k != "tls"}
    listed = keys_listed("| key of a Harbor server | value | default |")
    assert listed == expected | {"harbor_servers[].tls.*"}


def test_keys_of_references_are_listed() -> None:
    """So has the table of the keys of a reference."""
    expected = {f"references[].{key}" for key in ReferenceConfig.model_fields if key != "headline"}
    expected |= {f"references[].headline.{key}" for key in HeadlineConfig.model_fields}
    assert keys_listed("| key of a reference | value | default |") == expected


def test_names_of_comparing() -> None:
    """Every scope, interval and check has its row."""
    for header, names in (
        ("| scope | run | reference |", Scope),
        ("| interval | covers | undefined while |", IntervalKind),
        ("| check | holds if |", Check),
    ):
        assert keys_listed(header) == {str(name) for name in names}


def test_examples_of_pools_load(tmp_path: Path) -> None:
    """Every other configuration in a block is a good file."""
    file = tmp_path / "harborlight.yml"
    pools = [block for block in blocks("yaml") if block.startswith("pools:")]
    assert pools
    for block in pools:
        file.write_text(block, "utf-8")
        assert load_config(file).pools


def test_example_of_a_harbor_server_loads(tmp_path: Path) -> None:
    (block,) = (block for block in blocks("yaml") if block.startswith("harbor_servers:"))
    file = tmp_path / "harborlight.yml"
    file.write_text(block, "utf-8")
    (tmp_path / "harbor-key").write_text("key")
    assert load_config(file).harbor_servers


def test_provider_is_a_file_provider() -> None:
    """What Grafana is told reads what ``harborlight dashboards`` writes, one language of it."""
    (block,) = (block for block in blocks("yaml") if "providers:" in block)
    provisioned = yaml.safe_load(block)
    (provider,) = provisioned["providers"]
    assert provisioned["apiVersion"] == 1
    assert set(provider) == {"name", "folder", "options"}
    assert (provider["folder"], set(provider["options"])) == (DEFAULT_FOLDER, {"path"})
    assert Path(provider["options"]["path"]).name in LANGUAGES


def keys_listed(header: str) -> set[str]:
    """The first column of the table with this header."""
    table = TEXT[TEXT.index(header) :].partition("\n\n")[0]
    return {
        key for row in table.splitlines()[2:] for key in re.findall(r"`([^`]+)`", row.split("|")[1])
    }


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_promql_is_valid(tmp_path: Path) -> None:
    """Prometheus' own parser takes every example and the scrape configuration."""
    examples = [part for block in blocks("promql") for part in documents.expressions(block)]
    assert len(examples) == 29
    rules = [{"record": f"example:{i}", "expr": text} for i, text in enumerate(examples)]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "readme", "rules": rules}]}), "utf-8")
    _promtool("check", "rules", str(file))
    (scrape,) = (block for block in blocks("yaml") if "scrape_configs" in block)
    file.write_text(scrape, "utf-8")
    _promtool("check", "config", str(file))


def _promtool(*arguments: str) -> None:
    done = subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
