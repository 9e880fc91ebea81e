"""stream-resume/v1 (our own): SSE events carry ids, and a stream can be resumed after any of them.

The ids are in every stream, because a client that does not know them ignores them. What resumes a stream is
`engine/streams.py`.
"""

from __future__ import annotations

from roost.engine.extension import Extension
from roost.engine.hosted import Profile
from roost.protocol.types import AgentExtension

URI = "urn:roost:a2a:stream-resume:v1"


class StreamResume(Extension):
    uri = URI

    def declaration(self, profile: Profile | None) -> AgentExtension:
        return AgentExtension(
            uri=URI, description="SSE events carry ids; SubscribeToTask with Last-Event-ID goes on after that event."
        )
