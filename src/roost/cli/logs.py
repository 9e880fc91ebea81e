"""The log: text on a terminal and JSON otherwise, with the task, agent and principal that a line is about."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

from roost.cli.output import escaped
from roost.protocol.codec import encode

TRACE = "  | "
FIELDS = ("task", "agent", "principal", "error_id")


class TextFormatter(logging.Formatter):
    """One line for each record. The lines of a traceback have a mark in front, so that none looks like a record."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        extra = " ".join(f"{name}={getattr(record, name)}" for name in FIELDS if hasattr(record, name))
        text = f"{when} {record.levelname.lower():7} {record.getMessage()}" + (f"  [{extra}]" if extra else "")
        trace = self.formatException(record.exc_info).split("\n") if record.exc_info else []
        return "\n".join([_one_line(text), *(f"{TRACE}{_one_line(line)}" for line in trace)])


class JSONFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({name: str(getattr(record, name)) for name in FIELDS if hasattr(record, name)})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return escaped(encode(line).decode())


def _one_line(text: str) -> str:
    return escaped(text).replace("\n", "\\n").replace("\t", "\\t")


def configure(level: str, form: str) -> None:
    text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler()
    handler.setFormatter(TextFormatter() if text else JSONFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("roost").setLevel(level.upper())
