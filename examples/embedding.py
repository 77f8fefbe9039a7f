"""The agent as a part of another program: a queue in, a queue out.    python examples/embedding.py "Sum up notes.txt" """

from __future__ import annotations

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from agentmain import GenericAgent, Options
from genericagent.safety.asking import NO


def ask(agent: GenericAgent, request: str) -> dict[str, object]:
    """Have one task done; its last item says how it ended: status, answer, error, question."""
    queue = agent.put_task(request)
    while "done" not in (item := queue.get()):
        if event := item.get("event"):
            if event["kind"] == "ask":  # something that is not allowed without being asked: decide for your users
                agent.answer(event["id"], NO)
            elif event["kind"] == "tool":
                sys.stderr.write(f"  {event['name']}\n")
    return item


def main(request: str) -> str:
    agent = GenericAgent(Options(workspace=Path.cwd()))
    thread = threading.Thread(target=agent.run, daemon=True)
    thread.start()
    try:
        done = ask(agent, request)
        return str(done["answer"] if done["status"] == "done" else f"{done['status']}: {done.get('error')}")
    finally:
        agent.close()  # ends what runs, with all its processes
        thread.join(10)
        agent.release()


if __name__ == "__main__":
    sys.stdout.write(main(" ".join(sys.argv[1:]) or "Say hello.") + "\n")
