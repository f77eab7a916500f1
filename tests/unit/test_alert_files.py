"""``harborlight alerts``: rules, runbooks and an example for Alertmanager into a folder."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import alerts
from harborlight.alert_files import alert_files, runbooks
from harborlight.cli import main
from harborlight.package_files import MissingFilesError

RULES = ("harborlight-alerts.yml", "harborlight-recording.yml")


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of ``harborlight alerts``."""
    capsys.readouterr()
    code = main(["alerts", *map(str, arguments)])
    output, errors = capsys.readouterr()
    return code, output, errors


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def rules(document: Any) -> list[dict[str, Any]]:
    return [rule for group in document["groups"] for rule in group["rules"]]


def test_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything, once; the rules are those that are generated, byte for byte."""
    folder = tmp_path / "new" / "alerts"
    code, output, errors = run(capsys, folder)
    assert (code, errors) == (0, "")
    for name in RULES:
        assert (folder / "rules" / name).read_bytes() == (alerts.GENERATED / name).read_bytes()
    example = folder / "alertmanager.example.yml"
    assert example.read_bytes() == (alerts.GENERATED / "alertmanager.yml").read_bytes()
    pages = {path.name for path in (folder / "runbooks").iterdir()}
    assert pages == {path.name for path in alerts.RUNBOOKS.glob("*.md")}
    written = sorted(path for path in folder.rglob("*") if path.is_file())
    assert sorted(output.splitlines()) == [f"wrote {path}" for path in written]
    assert len(written) == 5 + len(pages)

    # A configuration that somebody made of the example is left alone.
    (folder / "alertmanager.yml").write_text("mine")
    code, output, _ = run(capsys, folder)
    assert code == 0
    assert {line.split()[0] for line in output.splitlines()} == {"unchanged"}
    assert (folder / "alertmanager.yml").read_text() == "mine"


def test_prometheus_rule_objects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same groups, as the Prometheus operator takes them."""
    run(capsys, tmp_path)
    for name in RULES:
        object_ = read(tmp_path / "prometheus-operator" / name)
        assert object_["apiVersion"] == "monitoring.coreos.com/v1"
        assert object_["kind"] == "PrometheusRule"
        assert object_["metadata"]["name"] == name.removesuffix(".yml")
        assert object_["spec"] == read(tmp_path / "rules" / name)


def test_links_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Dashboards and runbooks elsewhere, the rest as before."""
    own = ("--grafana-url", "https://g.example/x/", "--runbook-url", "https://w.example/runbooks")
    assert run(capsys, tmp_path, *own)[0] == 0
    theirs = rules(read(tmp_path / "rules" / RULES[0]))
    ours = rules(read(alerts.GENERATED / RULES[0]))
    for here, there in zip(theirs, ours, strict=True):
        links, defaults = here.pop("annotations"), there.pop("annotations")
        assert here == there
        assert links.pop("runbook_url") == f"https://w.example/runbooks/{here['alert']}.md"
        dashboard = links.pop("dashboard_url").removeprefix("https://g.example/x/d/harborlight-")
        assert defaults.pop("dashboard_url").endswith(f"/d/harborlight-{dashboard}")
        assert links == {k: v for k, v in defaults.items() if k != "runbook_url"}
    assert (
        read(tmp_path / "prometheus-operator" / RULES[0])["spec"]["groups"]
        == read(tmp_path / "rules" / RULES[0])["groups"]
    )


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_promtool_takes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, tmp_path, "--grafana-url", "https://g.example")
    files = [str(tmp_path / "rules" / name) for name in RULES]
    done = subprocess.run(
        ["promtool", "check", "rules", *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "url",
    ["ftp://host", "http://user:pw-canary@host", "http://host/{{x}}", "http://h/\n- x: y", "host"],
)
@pytest.mark.parametrize("flag", ["--grafana-url", "--runbook-url"])
def test_wrong_link(
    flag: str, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It could write anything into the rules: nothing is written."""
    code, output, errors = run(capsys, tmp_path / "new", flag, url)
    assert (code, output) == (2, "") and flag in errors and errors.count("\n") == 1
    assert "canary" not in errors
    assert list(tmp_path.iterdir()) == []


def test_installation_without_them(tmp_path: Path) -> None:
    with pytest.raises(MissingFilesError, match="no alert rules"):
        alert_files(package=tmp_path / "harborlight")
    with pytest.raises(MissingFilesError, match="no runbooks"):
        runbooks(package=tmp_path / "harborlight")
