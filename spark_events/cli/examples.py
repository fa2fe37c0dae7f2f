"""Examples that end the help of each command."""

from __future__ import annotations

import argparse

#: Two examples of each command; a test parses them.
EXAMPLES = {
    "conf": ("conf >> $SPARK_HOME/conf/spark-defaults.conf", "conf --jar"),
    "check": ("check", "check --conf spark-defaults.conf --set spark.events.reporters=audit"),
    "send-test": ("send-test", "send-test --conf spark-defaults.conf --timeout 30s"),
    "tail": ("tail -f events.jsonl", "tail events.jsonl --since 1h --min-severity WARN -v"),
    "replay": ("replay s3://bucket/spark-logs --since 7d", "replay eventlog_v2_app-1 --min-severity WARN"),
    "follow": ("follow s3://bucket/spark-logs --conf alerts.conf", "follow /var/log/spark-events --lost-after 1h -v"),
    "watch": ("watch /var/log/spark", "watch /var/log/spark --conf watch.conf"),
    "report": (
        "report /var/log/spark --since 24h --html report.html",
        "report sqlite:////var/lib/events.db --json --fail-on now",
    ),
    "why": ("why /var/log/spark", "why /var/log/spark clickstream --json"),
    "run": ("run -- spark-submit job.py", "run --retry transient=3,backoff=1min -- spark-submit job.py"),
    "uninstall": ("uninstall", "uninstall --conf spark-defaults.conf"),
}
_START = "examples:\n"


def add_examples(name: str, parser: argparse.ArgumentParser) -> None:
    """Add the examples of a command below its help."""
    lines = "\n".join(f"  spark-events {example}" for example in EXAMPLES[name])
    before = f"{parser.epilog}\n" if parser.epilog else ""
    parser.epilog = f"{before}{_START}{lines}"
    parser.formatter_class = _HelpFormatter


class _HelpFormatter(argparse.HelpFormatter):
    """Formatter that keeps the lines of the examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        before, start, examples = text.partition(_START)
        filled = super()._fill_text(before, width, indent) if before.strip() else ""
        return f"{filled}\n\n{start}{examples}".lstrip("\n") if start else filled
