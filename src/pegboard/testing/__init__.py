"""Testing: helpers for users' own tests of their tools and agents. Views, calls and guards are the real ones.

Only the language model is simulated: a `ModelServer` follows a script and answers in the providers' real formats.
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
