"""README.md's generated part: ``python -m support.readme`` writes it anew."""

from __future__ import annotations

from pathlib import Path

from harborlight.views.catalogue import markdown_table

README = Path(__file__).resolve().parents[2] / "README.md"
BEGIN = "<!-- metrics: begin -->\n"
END = "<!-- metrics: end -->\n"


def with_current_table(text: str) -> str:
    """``text`` with the table of metrics between its markers as the catalogue has it now."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"expected {BEGIN.strip()} and {END.strip()}, each on a line of its own")
    return f"{before}{begin}\n{markdown_table()}\n{end}{after}"


def main() -> None:
    """Rewrite README.md."""
    README.write_text(with_current_table(README.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
