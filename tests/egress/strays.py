"""Functions that the sandbox is asked to run; most of them misbehave."""

import os
import subprocess
import sys
import time


def double(value: object) -> list[object]:
    print("chatter that is not an answer")
    return [value, value]


def size(argument: object, payload: bytes) -> dict[str, object]:
    return {"argument": argument, "bytes": len(payload)}


def fail(argument: str) -> None:
    raise KeyError(argument)


def hang_with_child(seconds: str) -> None:
    child = subprocess.Popen(["sleep", seconds], start_new_session=True)
    print(child.pid, file=sys.stderr)
    time.sleep(60)


def spin(_argument: object) -> None:
    while True:
        pass


def hoard(_argument: None) -> int:
    return len(bytearray(10**12))


def babble(amount: int) -> str:
    return "x" * amount


def die(status: int) -> None:
    os._exit(status)


def write_file(path: str) -> None:
    with open(path, "w") as file:
        file.write("x")


def environment(_argument: None) -> dict[str, str]:
    return dict(os.environ)


def unanswerable(_argument: None) -> object:
    return object()


def half_an_answer(_argument: None) -> None:
    os.write(3, b'{"value": ')
    os._exit(0)
