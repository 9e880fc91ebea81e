"""Behaves as the A2A Technology Compatibility Kit expects, depending on the prefix of the message's id."""

import asyncio

from roost import Agent, Artifact, Part

LONG = 5
"""Pieces of a long answer. Each takes a tenth of a second."""

agent = Agent("tck", version="1.0.0", direct=True, input_modes=["*/*"], output_modes=["*/*"])


@agent.on_message
async def tck(task):
    """The A2A Technology Compatibility Kit's counterpart."""
    message_id = task.message.message_id
    if message_id.startswith("tck-message-response"):
        task.reply("Direct message response")
    while message_id.startswith("tck-input-required"):
        message_id = (await task.ask("More input, please")).message.message_id
    if message_id.startswith("tck-artifact-file-url"):
        part = Part(url="https://example.com/output.txt", filename="output.txt", media_type="text/plain")
        yield Artifact(artifact_id="file", parts=[part])
    elif message_id.startswith("tck-artifact-file"):
        yield Artifact(
            artifact_id="file", parts=[Part(raw=b"Generated file", filename="output.txt", media_type="text/plain")]
        )
    elif message_id.startswith("tck-artifact-data"):
        yield {"key": "value", "count": 42}
    elif message_id.startswith("tck-artifact-text"):
        yield "Generated text content"
    elif message_id.startswith(("tck-stream-001", "tck-stream-003", "tck-stream-ordering-001")):
        task.status("Working on it")
        yield "Stream content"
    elif message_id.startswith("tck-long-running"):  # for `roost conform`, not for the kit
        for number in range(1, LONG + 1):
            yield f"{number}\n"
            await asyncio.sleep(0.1)
    elif message_id.startswith("tck-complete-task"):
        task.done("Hello from TCK")
