"""Functions that the sandbox is asked to run; most of them misbehave."""

import os
import subprocess
import sys
import time


def double(value: object, _payload: bytes) -> list[object]:
    print("chatter that is not an answer")
    return [value, value]


def size(argument: object, payload: bytes) -> dict[str, object]:
    return {"argument": argument, "bytes": len(payload)}


def fail(argument: str, _payload: bytes) -> None:
    raise KeyError(argument)


def hang_with_child(seconds: str, _payload: bytes) -> None:
    child = subprocess.Popen(["sleep", seconds], start_new_session=True)
    print(child.pid, file=sys.stderr)
    time.sleep(60)


def environment(_argument: None, _payload: bytes) -> dict[str, str]:
    return dict(os.environ)


def unanswerable(_argument: None, _payload: bytes) -> object:
    return object()


def half_an_answer(_argument: None, _payload: bytes) -> None:
    os.write(3, b'{"value": ')
    os._exit(0)
