"""Files and data, in and out."""

import hashlib

from roost import Agent, Artifact, Part

agent = Agent("files", version="1.0.0", input_modes=["*/*"], output_modes=["*/*"])


@agent.on_message
async def files(task):
    """Describes the files and data in the message, and returns each file."""
    described = []
    for number, part in enumerate(task.parts, 1):
        if isinstance(part.raw, bytes):
            name = part.filename or f"file-{number}"
            described.append({"filename": name, "bytes": len(part.raw), "sha256": hashlib.sha256(part.raw).hexdigest()})
            yield Artifact(
                artifact_id=f"file-{number}",
                name=name,
                parts=[Part(raw=part.raw, filename=name, media_type=part.media_type or "application/octet-stream")],
            )
        elif isinstance(part.url, str):
            described.append(
                {"url": part.url, "filename": part.filename}
            )  # never fetched, because it came from a caller
        elif isinstance(part.text, str):
            described.append({"characters": len(part.text)})
        else:
            described.append({"data": part.data})
    yield {"parts": described}
