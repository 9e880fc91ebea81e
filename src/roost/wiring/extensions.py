"""The list of extensions, in the order in which they see a message.

To add an extension, write its file in `extensions/` and add one line here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from roost.engine.extension import Extension, Extensions
from roost.extensions.idempotency import Idempotency
from roost.extensions.multi_tenant import OFF, Enforcement, MultiTenant
from roost.extensions.stream_resume import StreamResume
from roost.settings import Settings


def open_extensions(settings: Settings, more: Sequence[Extension] = ()) -> Extensions:
    tenants = settings.multi_tenant
    extensions: list[Extension | None] = [
        StreamResume(),
        MultiTenant(cast(Enforcement, tenants)) if tenants != OFF else None,
        Idempotency(settings.idempotency, settings.idempotency_ttl_s, settings.idempotency_max),
        *more,
    ]
    return Extensions(one for one in extensions if one is not None)
