"""Play the language model of the team: `python models.py` answers on port 8765 until Ctrl-C.

It speaks the real format of OpenAI's chat completions, so nothing of the team knows that nobody thinks here.
"""

import re
import threading

from pegboard.testing import CallsTool, ModelRequest, ModelServer, ModelTurn

PORT = 8765


def play(request: ModelRequest) -> ModelTurn:
    """Answer as one of the three would, whom the system prompt tells."""
    role, company = re.findall(r"You (lead|research|write) .*?about (\w+)", request.system)[0]
    # Whoever was told what its tools gave answers; whoever was not asks them.
    facts = " ".join(outcome.text for outcome in request.outcomes)
    ask = {"company": company}
    match role, bool(facts):
        case "lead", False:
            parts = ("I ask both. ", CallsTool("research", ask), CallsTool("draft", ask | {"tone": "plain"}))
        case "lead", True:
            parts = ("The team ", "says: ", facts)
        case "research", False:
            parts = (CallsTool("look_up", ask),)
        case "research", True:
            parts = ("I found ", facts)
        case _, False:
            parts = (CallsTool("check", ask),)
        case _:
            parts = (f"{company} is a company. ", f"({facts})")
    return ModelTurn(parts=parts)


if __name__ == "__main__":
    with ModelServer(play, port=PORT) as server:
        print(f"Playing the model on {server.openai_url}, until Ctrl-C.", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print("Done.")
