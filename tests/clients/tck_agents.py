"""Agents whose cards declare what that of `tck` does not, for the tests of the kit that are passed over there."""

import msgspec

from roost import Agent, AgentExtension
from roost.agents.agent import HostedFunction


class Unstreamed(Agent):
    def hosted(self) -> HostedFunction:
        hosted = super().hosted()
        hosted.profile = msgspec.structs.replace(hosted.profile, streaming=False)
        return hosted


plain = Unstreamed("tck-plain")


@plain.on_message
async def at_once(task):
    """Has no streams."""
    return "done"


strict = Agent("tck-strict", extensions=[AgentExtension(uri="urn:a2a:tck:required-extension", required=True)])


@strict.on_message
async def extended(task):
    """Is only for clients that know an extension."""
    return "done"
