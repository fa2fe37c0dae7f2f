"""Links in failure events to pages that help to find the cause."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from spark_events.event import AttributeValue
from spark_events.records.types import ApplicationStart
from spark_events.translate.draft import present
from spark_events.translate.incidents.incident_config import LinkConfig

__all__ = ["Links"]


class Links:
    """Links to the application's pages, its log, its traces and the runbook.

    Args:
        config: the configured URLs.
    """

    def __init__(self, config: LinkConfig) -> None:
        self._config = config
        self._of_application: dict[str, AttributeValue] = {}
        #: URL of the driver's UI; unknown until the first failure is reported.
        self.ui: str = ""

    def started(self, record: ApplicationStart) -> None:
        """Store the links that the application's start reports: history server, YARN tracking URL."""
        known = record.links
        history = self._config.history or known.get("history")
        if history is not None and record.app_id:
            history = history if "://" in history else f"http://{history}"
            attempt = f"/{record.attempt_id}" if record.attempt_id else ""
            history = f"{history.rstrip('/')}/history/{record.app_id}{attempt}/jobs/"
        self._of_application = present(
            {
                "spark.history.url": history,
                "spark.yarn.tracking_url": known.get("tracking"),
            }
        )

    def of(self, attributes: Mapping[str, AttributeValue], key: str) -> dict[str, AttributeValue]:
        """Return the links of one failure.

        Args:
            attributes: the attributes of the failure's event.
            key: the key of the failure's incident.
        """
        found = dict(self._of_application)
        if self.ui:
            found["spark.ui.url"] = self.ui
        config = self._config
        templates = {
            "incident.runbook_url": config.runbook,
            "spark.log.url": config.log,
            "spark.trace.url": config.trace,
        }
        if any(templates.values()):
            values = {
                "app": attributes.get("spark.app.name"),
                "app_id": attributes.get("spark.app.id"),
                "query": attributes.get("spark.streaming.query.name"),
                "group": attributes.get("spark.job.group"),
                "error_type": attributes.get("error.type"),
                "fingerprint": attributes.get("failure.fingerprint"),
                "key": key,
            }
            quoted = {name: quote(str(value or ""), safe="") for name, value in values.items()}
            found |= {name: template.format_map(quoted) for name, template in templates.items() if template}
        return found
