"""Testing: what users test their tools and agents with. Views, calls and guards are the real ones.

The one stand-in is the language model: a `ModelServer` answers as a script says, in the real formats of the providers.
"""

from pegboard.testing.calls import (
    EventRecorder,
    RecordedContext,
    ScriptedApprover,
    assert_hidden,
    assert_visible,
    call_context,
    isolated_catalog,
    scripted_approver,
)
from pegboard.testing.model_script import (
    CallsTool,
    Hangup,
    Hold,
    ModelFailure,
    ModelMessage,
    ModelRequest,
    ModelTurn,
    Pause,
    RawBytes,
    ToolOutcome,
    by_conversation,
)
from pegboard.testing.model_server import ModelServer

__all__ = [
    "CallsTool",
    "EventRecorder",
    "Hangup",
    "Hold",
    "ModelFailure",
    "ModelMessage",
    "ModelRequest",
    "ModelServer",
    "ModelTurn",
    "Pause",
    "RawBytes",
    "RecordedContext",
    "ScriptedApprover",
    "ToolOutcome",
    "assert_hidden",
    "assert_visible",
    "by_conversation",
    "call_context",
    "isolated_catalog",
    "scripted_approver",
]
