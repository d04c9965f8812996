"""datetime_now: tell what time it is in a time zone."""

from __future__ import annotations

import difflib
import zoneinfo

from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.tool import Annotations, Handler
from pegboard.sources.builtin.kind import BuiltinKind, NoConfig, Services, tool_spec

SPEC = tool_spec(
    "datetime_now",
    "Tell the current date and time in a time zone.",
    arguments={
        "timezone": {
            "type": "string",
            "default": "UTC",
            "maxLength": 100,
            "description": "IANA name of the zone, such as Europe/Berlin.",
        }
    },
    result={
        "datetime": {"type": "string", "description": "ISO 8601, with the offset of the zone."},
        "timezone": {"type": "string"},
        "unix_timestamp": {"type": "number", "description": "Seconds since 1970-01-01 UTC."},
    },
    always=("datetime", "timezone", "unix_timestamp"),
    annotations=Annotations(read_only=True, destructive=False, idempotent=False, open_world=False),
    examples=({"timezone": "Europe/Berlin"}, {}),
)


def make(config: NoConfig, services: Services) -> Handler:
    """Return the handler; the time comes from `services.now`."""

    def tell(ctx: CallContext, args: JSON) -> JSON:
        name: str = args.get("timezone", "UTC")
        moment = services.now().astimezone(_zone(name))
        return {"datetime": moment.isoformat(), "timezone": name, "unix_timestamp": moment.timestamp()}

    return tell


def _zone(name: str) -> zoneinfo.ZoneInfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise CallError("invalid_arguments", _unknown(name)) from None


def _unknown(name: str) -> str:
    zones = sorted(zoneinfo.available_timezones())
    wanted = name.strip().lower().replace(" ", "_")
    # People name a city, so compare with the last part too.
    near = [zone for zone in zones if zone.lower().rpartition("/")[2] == wanted.rpartition("/")[2]]
    folded = {zone.lower(): zone for zone in zones}
    near += [folded[match] for match in difflib.get_close_matches(wanted, folded, n=3, cutoff=0.6)]
    listed = ", ".join(repr(zone) for zone in list(dict.fromkeys(near))[:3])
    advice = f"Did you mean {listed}?" if listed else "Use an IANA name, such as 'Europe/Berlin' or 'UTC'."
    return f"There is no time zone {name!r}. {advice}"


KIND = BuiltinKind(spec=SPEC, config=NoConfig, make=make, runs="inline", needs_context=False)
