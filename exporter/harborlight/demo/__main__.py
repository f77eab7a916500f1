"""`python -m harborlight.demo`: the demo scenario."""

from harborlight.demo.terminal_bench import main

if __name__ == "__main__":
    raise SystemExit(main())
