"""Alerts: reads the alerts of a config and their receivers."""

from __future__ import annotations

from pegboard.config.config import Config
from pegboard.config.forms.alert_form import AlertCommandForm
from pegboard.config.yaml.problems import Report
from pegboard.egress.destinations import encrypted_host_of
from pegboard.model.alert import AlertRule, Alerts
from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret


def alerts_of(config: Config, report: Report) -> Alerts:
    """Return the alerts of a config; those that cannot be sent are reported."""
    rules: list[AlertRule] = []
    for declared in config.alerts:
        form = declared.value
        if isinstance(form.to, AlertCommandForm):
            rules.append(AlertRule(on=frozenset(form.on), command=form.to.command))
            continue
        url = secret_of(form.to)
        try:
            encrypted_host_of(url.reveal(), content="alerts")
        except DefinitionError as error:
            report.add((declared.at / "to").problem(str(error)))
            continue
        rules.append(AlertRule(on=frozenset(form.on), url=url, secret=secret_of(form.secret or "")))
    return Alerts(rules=tuple(rules), folder=str(config.path.absolute().parent))


def secret_of(text: str | Secret) -> Secret:
    """Return a text of a config as a secret, whether it was concealed or not."""
    return text if isinstance(text, Secret) else Secret(text)
